"""What SCALLION and SCAFCOM share: local steps with control variates, and the server.

Huang, Li, Li, "Stochastic Controlled Averaging for Federated Learning with Communication Compression" (ICLR 2024, arXiv
2308.08165), reconstructed: only the abstract was at hand.

    client:  x = z;   for k:  x ← x - α (g_i(x) + c - c_i);   Δ_i = C(...);   c_i ← c_i + Δ_i;   upload Δ_i
    server:  z ← prox_{βh}(z - β (c + mean Δ_i));   c ← c + (S/N) mean Δ_i;   broadcast z and c

With some of the clients the step uses the whole mean, c its share, which keeps c = mean c_i.  The prox is ours (see
smooth.py).
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import corrected_steps
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class CompressedControl(SmoothMethod, ABC):
    """Control variates that learn from compressed increments."""

    steps_locally: ClassVar[bool] = True
    compresses: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("delta",)

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "c": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"c_i": z0.new_zeros(z0.shape)}

    def gradient(self, replica: State, client: State, oracle: Oracle) -> Vector:
        """The mean of the K gradients along a client's local steps."""
        drift = replica["c"] - client["c_i"]
        return corrected_steps(self, replica["z"], drift, self.local_oracle(oracle)).g_mean

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        c, delta = replica["c"], received.mean["delta"]
        z = self.server_prox(replica["z"] - self.step * (c + delta))
        return {"z": Dense(z), "c": Dense(c + received.share * delta)}, {}
