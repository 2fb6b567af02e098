"""FedCOMGATE: local gradient tracking with compressed changes.

Haddadpour, Kamani, Mokhtari, Mahdavi 2021 (arXiv 2007.01154), reconstructed: the paper was not at hand.

    client:  x = z;   for k:  x ← x - α (g_i(x) - δ_i);   D_i = C((z - x)/(αK));   upload D_i
    server:  broadcast D = mean D_i
    all:     z ← prox_{βh}(z - β D);   δ_i ← δ_i + D_i - D

The correction δ_i needs D, which arrives after the client's own work is done.  It is kept as its two parts, δ_i = d_i -
d: d_i adds up a client's own messages, d the broadcast ones.  (z - x)/(αK) is computed as the mean gradient plus d -
d_i, which is the same number with more digits.  D is sent as its non-zero entries.  The authors' code adds the client's
own change to δ_i uncompressed; here it is D_i, so that the δ_i add up to zero.

All clients take part: otherwise the δ_i do not add up to zero.  The authors' C is unbiased; but E|δ_i - ḡ_i|², ḡ_i the
mean gradient, is multiplied by about ω = E|C(x) - x|²/|x|² in a round, so ω must be below about 1: for scaled Rand-k, k
at least p/2.  A contractive C works, too: what it drops stays in δ_i.  Uncompressed and with h = 0 it is SCAFFOLD.  The
prox is ours (see smooth.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import corrected_steps
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.core.rng import Key
from fedcef.wire import Nonzeros


@dataclass(frozen=True, kw_only=True, eq=False)
class FedCOMGATE(SmoothMethod):
    """Local gradient tracking with compressed changes."""

    partial_participation: ClassVar[bool] = False
    steps_locally: ClassVar[bool] = True
    compresses: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("d_i",)

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "d": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"d_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        correction = replica["d"] - client["d_i"]
        g_mean = corrected_steps(self, replica["z"], correction, self.local_oracle(oracle)).g_mean
        sent = self.compressor.compress(g_mean + correction, key)
        return {"d_i": sent}, {"d_i": client["d_i"] + sent.dense()}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        return {"d": Nonzeros(received.mean["d_i"])}, {}

    def advance(self, replica: State, down: Message) -> State:
        change = down["d"].dense()
        return {"z": self.server_prox(replica["z"] - self.step * change), "d": replica["d"] + change}
