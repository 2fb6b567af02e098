"""FedPAQ: FedAvg with compressed changes.

Reisizadeh et al. 2020 (arXiv 1909.13014), from memory of it: periodic averaging, partial participation, quantisation.

    client:  x = z;   for k:  x ← x - α g_i(x);   upload C(x - z)
    server:  z ← prox_{βh}(z + η_g · mean C(x - z));   broadcast z

The authors' C is unbiased (`randk` with `scaled` here), η_g = 1, and there is no memory.  So where clients differ the
noise of C does not fade: z stays in a neighbourhood that shrinks with the step.  A biased C, like Top-k, is accepted,
and moves the limit.  The prox is ours (see smooth.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithm import Message, Oracle, State
from fedcef.algorithms.fedavg import FedAvg
from fedcef.rng import Key


@dataclass(frozen=True, kw_only=True, eq=False)
class FedPAQ(FedAvg):
    """FedAvg with compressed changes, without memory."""

    compresses: ClassVar[bool] = True

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        up, _ = super().local(replica, client, oracle, key)
        return {"change": self.compressor.compress(up["change"].dense(), key)}, {}
