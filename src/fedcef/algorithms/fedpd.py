"""FedPD: a primal-dual method.

Zhang, Hong, Dhople, Yin, Liu 2021 (arXiv 2005.11418), the variant that communicates in every round.  With the dual l_i
of the constraint x_i = z, and η = penalty_step,

    client:  x_i ≈ argmin f_i(x) + ⟨l_i, x - z⟩ + |x - z|²/(2η);   l_i ← l_i + (x_i - z)/η;   upload x_i + η l_i
    server:  z ← prox_{(η_g η)h}(z + η_g (mean upload - z));   broadcast z

The paper has η_g = 1 and h = 0.  The local problem is solved by K steps of size α, which start at the client's last x_i
as in the authors' code (`start = "own"`), or at z.  All clients must take part.

Ours is the proximal step after forming z, of length η_g·η, which makes the fixed point exact (see feddyn.py).  With it
and all clients, this is ADMM for the composite problem, in the form of FedADMM (Wang, Marella, Anderson 2022).  With
`start = "server"` the iterates are those of FedDyn for μ = 1/η: l_i = -g_i, both zero at the start, the same z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import gradient_steps, penalized
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.core.ranges import Positive
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedPD(SmoothMethod):
    """FedPD with communication in every round, and a proximal step on the server."""

    penalty_step: Positive = 1.0
    """η: the inverse weight of the quadratic term, and the length of the server's step."""
    start: Literal["own", "server"] = "own"
    """Where a client's local steps begin: at its own last point, or at z."""

    partial_participation: ClassVar[bool] = False
    steps_locally: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ()

    @property
    def step(self) -> float:
        """η_g·η."""
        return self.server_lr * self.penalty_step

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def client_init(self, z0: Vector) -> State:
        return {"x_i": z0, "l_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        z, l_i = replica["z"], client["l_i"]
        start = client["x_i"] if self.start == "own" else z
        x_i = gradient_steps(self, start, penalized(self.local_oracle(oracle), z, l_i, 1 / self.penalty_step)).x
        l_i = l_i + (x_i - z) / self.penalty_step
        return {"x_plus": Dense(x_i + self.penalty_step * l_i)}, {"x_i": x_i, "l_i": l_i}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        z = replica["z"]
        z = self.server_prox(z + self.server_lr * (received.mean["x_plus"] - z))
        return {"z": Dense(z)}, {}
