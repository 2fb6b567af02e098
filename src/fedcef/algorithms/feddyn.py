"""FedDyn: dynamic regularisation.

Acar et al. 2021 (arXiv 2111.04263).  Client i remembers g_i, its gradient where its last local problem ended, and the
server g, the mean of all g_i (the paper's h):

    client:  x ≈ argmin f_i(x) - ⟨g_i, x⟩ + (μ/2)|x - z|²;   g_i ← g_i - μ (x - z);   upload x - z
    server:  g ← g - μ (S/N) mean (x - z);   z ← prox_{(η_g/μ)h}(z + η_g (mean (x - z) - g/μ));   broadcast z

The paper has η_g = 1 and h = 0; then z = mean x - g/μ.  The local problem is solved by K steps of size α from z.  The
authors' code also clips gradients, adds weight decay and divides μ by a client's relative size; none of that is here.
z is evaluated and deployed, not the mean of the x: it is what everyone knows and where zeros are exact.

Ours is the proximal step after forming z, of length η_g/μ.  It makes the fixed point exact: there x = z, so
g_i = ∇f_i(z), however few local steps are taken, and z = prox_{(η_g/μ)h}(z - (η_g/μ)∇f(z)).  (Length β would solve
the problem with β·μ/η_g times h.)  With αKμ well below 1 the g_i lag behind: z swings to and fro for long, and the
first proximal steps, of length η_g/μ with little to oppose them, can set all of a network to zero.
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
class FedDyn(SmoothMethod):
    """FedDyn, with a proximal step on the server."""

    penalty: Positive = 1.0
    """μ: how strongly a client is held near z; 1/μ is the server's step.  The authors use 0.01 on CIFAR-10."""

    steps_locally: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("change",)

    @property
    def step(self) -> float:
        """η_g/μ."""
        return self.server_lr / self.penalty

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def server_init(self, z0: Vector) -> State:
        return {"g": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"g_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        z, g_i = replica["z"], client["g_i"]
        change = gradient_steps(self, z, penalized(self.local_oracle(oracle), z, -g_i, self.penalty)).x - z
        return {"change": Dense(change)}, {"g_i": g_i - self.penalty * change}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        change = received.mean["change"]
        g = server["g"] - self.penalty * received.share * change
        z = self.server_prox(replica["z"] + self.server_lr * (change - g / self.penalty))
        return {"z": Dense(z)}, {"g": g}
