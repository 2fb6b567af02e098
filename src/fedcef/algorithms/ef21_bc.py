"""EF21-BC: EF21 with compression both ways.

Fatkhullin, Sokolov, Gorbunov, Li, Richtárik, "EF21 with Bells & Whistles" (arXiv 2110.03294).  Clients as in ef21.py;
the server learns the mean ḡ of the g_i, and tells everyone by the same trick:

    server:  ḡ ← ḡ + mean Δ_i;   b = C'(ḡ - g);   broadcast b
    all:     g ← g + b;   z ← prox_{βh}(z - β g)

C' is Top-k with its own ratio.  Nobody is sent z: everyone computes it.  With C' the identity it is EF21 with a sparse
broadcast.  The prox with both compressions is ours, as is what ef21.py says.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcef.algorithms.algorithm import Message, Received, State, Vector
from fedcef.algorithms.ef21 import EF21
from fedcef.compressors import TopK
from fedcef.core.ranges import Fraction
from fedcef.wire import Nonzeros


@dataclass(frozen=True, kw_only=True, eq=False)
class EF21BC(EF21):
    """EF21 with compression in both directions."""

    down_ratio: Fraction = 0.1
    """The share of entries that the server keeps; 1 compresses nothing on the way down."""

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "g": z0.new_zeros(z0.shape)}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        g_mean = server["g"] + received.share * received.mean["delta"]
        increment = TopK(ratio=self.down_ratio).keep(g_mean - replica["g"])
        return {"increment": Nonzeros(increment.dense())}, {"g": g_mean}

    def advance(self, replica: State, down: Message) -> State:
        g = replica["g"] + down["increment"].dense()
        return {"z": self.server_prox(replica["z"] - self.step * g), "g": g}
