"""What the server makes of the clients' mean change: the seam for server optimisers.

A server update is an `init`/`update` pair.  A method whose server moves by a mean change asks it for the step, and goes
z ← z + η_g·step.  Its state is part of the server's: it is in snapshots, and is resumed with them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedcef.core.parts import validate
from fedcef.optimizers.local import State

Memory = Annotated[float, Field(ge=0, lt=1)]
"""How much of the past is kept from round to round: 0 or more, and below 1."""


class ServerUpdate(ABC):
    """From the mean change of a round to the server's step; a subclass is a frozen dataclass of its options."""

    def __post_init__(self) -> None:
        validate(self)

    @property
    def gain(self) -> float:
        """How far the steps lead in all for every unit of mean change; a method's proximal steps are as much longer.

        Without that, a server that repeats its steps would solve the problem with a smaller regulariser.
        """
        return 1.0

    def init(self, z: Tensor) -> State:
        """The state before the first round, which starts at z; without an override there is none."""
        return {}

    @abstractmethod
    def update(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        """The step and the state after it.

        Args:
            mean: (p,): what the clients of the round moved by, on average.
            state: What `init` or the round before returned.

        Returns:
            The step, (p,), before η_g, and the new state.  Arguments are left as they are.
        """


@dataclass(frozen=True, eq=False)
class Plain(ServerUpdate):
    """Plain averaging: the step is the mean."""

    def update(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        return mean, state
