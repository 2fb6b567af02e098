"""Zhang et al.: composite federated learning with heterogeneous data, without compression.

Zhang, Hu, Johansson, "Composite federated learning with heterogeneous data" (ICASSP 2024, arXiv
2309.01795) and its non-convex sequel (arXiv 2502.03958), as reconstructed in docs/algorithms.md:

    client:  x̂ = x = z;   for k:  x̂ ← x̂ - α (g_i(x) + c - g_i^prev);   x ← prox_{(k+1)αh}(x̂);   upload x̂
    server:  z̃ = z + η_g (mean x̂ - z);   broadcast z̃
    client:  c = (z - z̃)/β;   z = prox_{βh}(z̃)

where g_i^prev is the mean of client i's gradients in the round before.  The authors write the correction as
one variable, c - g_i^prev, formed when z̃ arrives; it is kept here as its two parts, so that a client's own
state depends on its own work alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Algorithm, Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import corrected_steps
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class Zhang(Algorithm):
    """Zhang et al.: the same local steps as FedCEF, uncompressed; dense both ways."""

    steps_locally: ClassVar[bool] = True
    partial_participation: ClassVar[bool] = False

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "c": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"g_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        correction = replica["c"] - client["g_i"]
        steps = corrected_steps(self, replica["z"], correction, oracle, self.regularizer)
        return {"x_hat": Dense(steps.x_hat)}, {"g_i": steps.g_mean}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        z = replica["z"]
        return {"z_tilde": Dense(z + self.server_lr * (received.mean["x_hat"] - z))}, {}

    def advance(self, replica: State, down: Message) -> State:
        z_tilde = down["z_tilde"].dense()
        return {"z": self.regularizer.prox(z_tilde, self.step), "c": (replica["z"] - z_tilde) / self.step}
