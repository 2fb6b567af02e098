"""FedDC: drift decoupling and correction.

Gao et al. 2022 (arXiv 2203.11751), as in the authors' code.  Client i keeps its drift d_i (theirs: h_i) and g_i:

    client:  x ≈ argmin f_i(x) + ⟨g - g_i, x⟩ + (μ/2)|x - (z - d_i)|²;   d_i ← d_i + x - z
             g_i ← g_i - g + (z - x)/(Kα);   upload x - z and the change of g_i
    server:  d ← d + (S/N) mean (x - z);   g ← g + (S/N) mean change of g_i
             z ← prox_{(η_g/μ)h}(z + η_g (mean (x - z) + d));   broadcast z and g

The paper has η_g = 1 and h = 0; then z = mean x + mean of all d_i.  The local problem is solved by K steps of size α
from z.  The authors' code also clips gradients, adds weight decay and divides μ and g by a client's relative size; none
of that is here.  The second upload is -g - (x - z)/(Kα), which the server could compute; it is sent, and counted, as
published.

Where it stops (ours): x = z, since d_i stands still; hence g = 0, and the clients' stationarity
∇f_i(z) + μ d_i + g - g_i = 0 has the mean ∇f(z) = -μ d.  So for h = 0, where z = mean x + d means d = 0, the limit is
exact, whatever K; and the proximal step after forming z, of length η_g/μ, keeps it exact for any h.  The single d_i are
not determined: g_i takes up whatever of μ d_i is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import gradient_steps, penalized
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.core.ranges import Positive
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedDC(SmoothMethod):
    """FedDC, with a proximal step on the server; two vectors each way."""

    penalty: Positive = 1.0
    """μ: how strongly a client is held near z less its drift.  The authors use 0.01 on CIFAR-10."""

    steps_locally: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("change", "moved")

    @property
    def step(self) -> float:
        """η_g/μ."""
        return self.server_lr / self.penalty

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "g": z0.new_zeros(z0.shape)}

    def server_init(self, z0: Vector) -> State:
        return {"d": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"d_i": z0.new_zeros(z0.shape), "g_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        z, g, d_i, g_i = replica["z"], replica["g"], client["d_i"], client["g_i"]
        change = gradient_steps(self, z, penalized(self.local_oracle(oracle), z - d_i, g - g_i, self.penalty)).x - z
        moved = -g - change / (self.local_lr * self.local_steps)
        return {"change": Dense(change), "moved": Dense(moved)}, {"d_i": d_i + change, "g_i": g_i + moved}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        change = received.mean["change"]
        d = server["d"] + received.share * change
        g = replica["g"] + received.share * received.mean["moved"]
        z = self.server_prox(replica["z"] + self.server_lr * (change + d))
        return {"z": Dense(z), "g": Dense(g)}, {"d": d}
