"""EControl: EF21 and the older error feedback in one message.

Gao, Islamov, Stich, "EControl: Fast Distributed Optimization with Compression and Error Control" (ICLR 2024, arXiv
2311.05645), reconstructed: the paper was not at hand.  e_i adds up how far g_i was from the gradient; η of it is fed
back:

    client:  Δ_i = C(η e_i + g - g_i);   e_i ← e_i + g - g_i - Δ_i;   g_i ← g_i + Δ_i;   upload Δ_i
    server:  as in ef21.py

where g is the client's gradient at z; the authors call g_i h_i, and start it at a gradient, here at zero.  That the
server steps along the *new* mean of the g_i is derived: then z - β·mean e_i moves by exactly -β·mean g, as error
feedback should.  e_i and Δ_i go to zero with exact gradients.  η = 0 is EF21.  The prox and partial participation are
ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcef.algorithms.algorithm import Message, Oracle, State, Vector
from fedcef.algorithms.ef21 import EF21
from fedcef.core.ranges import UnitInterval
from fedcef.core.rng import Key


@dataclass(frozen=True, kw_only=True, eq=False)
class EControl(EF21):
    """EF21 with a share of the accumulated error fed back (reconstructed)."""

    feedback: UnitInterval = 0.1
    """η: how much of the accumulated error enters a message; 0 is EF21.  Much above the share of entries that the
    compressor keeps it needs shorter steps."""

    def client_init(self, z0: Vector) -> State:
        return {"g_i": z0.new_zeros(z0.shape), "e_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        g_i, e_i = client["g_i"], client["e_i"]
        gap = self.gradient(replica, oracle) - g_i
        delta = self.compressor.compress(self.feedback * e_i + gap, key)
        return {"delta": delta}, {"g_i": g_i + delta.dense(), "e_i": e_i + gap - delta.dense()}
