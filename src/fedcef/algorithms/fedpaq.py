"""FedPAQ: FedAvg with compressed changes.

Reisizadeh et al. 2020 (arXiv 1909.13014), reconstructed: the paper was not at hand.

    client:  x = z;   for k:  x ← x - α g_i(x);   upload C(x - z)
    server:  z ← prox_{βh}(z + η_g · mean C(x - z));   broadcast z

The authors' C is unbiased (`randk` with `unbiased` here), η_g = 1, and there is no memory.  Rand-k draws one support
for all, so that it acts on the mean change: the limit is FedAvg's, off by O(αK) where clients differ.  A biased C, like
Top-k, is accepted, but its limit is off by an amount that does not shrink with the step.  The prox is ours (see
smooth.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, State
from fedcef.algorithms.fedavg import FedAvg
from fedcef.core.rng import Key


@dataclass(frozen=True, kw_only=True, eq=False)
class FedPAQ(FedAvg):
    """FedAvg with compressed changes, without memory."""

    compresses: ClassVar[bool] = True

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        up, kept = super().local(replica, client, oracle, key)
        return {"change": self.compressor.compress(up["change"].dense(), key)}, kept
