"""What a client makes of a gradient: the seam for local optimisers.

A local update is an `init`/`update` pair.  In each local step the method forms its gradient, corrections and penalties
included, asks the update for a direction and goes x ← x - α·direction.  The step size α, what is added to the gradient
and the proximal step stay the method's.  Like a method, an update is elementwise or reduces over the last axis, so that
one client and a stack of them go through the same lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from fedcef.core.parts import validate

State = dict[str, Tensor]
"""Named vectors."""


class LocalUpdate(ABC):
    """From a gradient to the direction of a local step; a subclass is a frozen dataclass of its options."""

    def __post_init__(self) -> None:
        validate(self)

    def init(self, x: Tensor) -> State:
        """The state before the first step of a client that stands at x; without an override there is none."""
        return {}

    @abstractmethod
    def update(self, gradient: Tensor, state: State, x: Tensor, step: int) -> tuple[Tensor, State]:
        """The direction of a step, and the state after it.

        Args:
            gradient: (..., p), at x.
            state: What `init` or the step before returned.
            x: (..., p), or (p,) where all clients stand at the same point.
            step: Which of the round's local steps it is, counted from 0.

        Returns:
            The direction, (..., p), and the new state.  Arguments are left as they are, and nothing is read back from
            the device: a CUDA graph may hold this call.
        """


@dataclass(frozen=True, eq=False)
class SGD(LocalUpdate):
    """Plain stochastic gradient descent: the direction is the gradient."""

    def update(self, gradient: Tensor, state: State, x: Tensor, step: int) -> tuple[Tensor, State]:
        return gradient, state
