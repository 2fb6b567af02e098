"""Qsparse-local-SGD: FedAvg with compressed changes and error feedback.

Basu, Data, Karakus, Diggavi 2019 (arXiv 1906.02367), synchronous form:

    client:  x = z;   for k:  x ← x - α g_i(x);   d_i = C(e_i + x - z);   e_i ← e_i + x - z - d_i;   upload d_i
    server:  z ← prox_{βh}(z + η_g · mean d_i);   broadcast z

Signs are FedAvg's here.  The memory advances by the client's own decoded message.  The authors' C is Top-k with
quantised values (the option `values` of the compressors), and η_g = 1; with another η_g it is Fed-EF (fed_ef.py).
C must be contractive.  There is no correction of drift, and the memory holds steps, not gradients: where clients
differ, z stays in a neighbourhood that shrinks with the step.  Absent clients keep their memory.  The prox is ours (see
smooth.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, State, Vector
from fedcef.algorithms.fedavg import FedAvg
from fedcef.core.rng import Key


@dataclass(frozen=True, kw_only=True, eq=False)
class Qsparse(FedAvg):
    """FedAvg with compressed changes and error feedback (Qsparse-local-SGD)."""

    compresses: ClassVar[bool] = True

    def client_init(self, z0: Vector) -> State:
        return {"e_i": z0.new_zeros(z0.shape), **super().client_init(z0)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        up, kept = super().local(replica, client, oracle, key)
        wanted = client["e_i"] + up["change"].dense()
        sent = self.compressor.compress(wanted, key)
        return {"change": sent}, {"e_i": wanted - sent.dense(), **kept}
