"""What FedDR and FedADMM share: a server that averages reflected points and takes the proximal step on h.

    server:  x̃ ← x̃ + (S/N) · mean (change of x̂_i);   z = prox_{ηh}(x̃);   broadcast z

All starts at z0, so that x̃ = mean x̂_i holds from the first round on, whoever takes part.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, Literal

from fedcef.algorithms.algorithm import Algorithm, Message, Received, State, Vector
from fedcef.core.ranges import Positive
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class SplittingMethod(Algorithm, ABC):
    """Local problems with a penalty, and a server that splits off h."""

    penalty_step: Positive = 1.0
    """η: the length of the proximal steps, on f_i and on h; one over the penalty."""
    start: Literal["own", "server"] = "own"
    """Where a client's local steps begin: at its own last point, or at z."""

    steps_locally: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("change",)

    @property
    def step(self) -> float:
        """η."""
        return self.penalty_step

    def largest_prox_step(self, rounds: int) -> float:
        return self.penalty_step

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def server_init(self, z0: Vector) -> State:
        return {"x_tilde": z0}

    def first_point(self, z: Vector, x_i: Vector) -> Vector:
        """Where the local steps of this round begin."""
        return x_i if self.start == "own" else z

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        x_tilde = server["x_tilde"] + received.share * received.mean["change"]
        return {"z": Dense(self.regularizer.prox(x_tilde, self.penalty_step))}, {"x_tilde": x_tilde}
