"""What a client makes of a gradient: the seam for local optimisers.

A local update is an `init`/`update` pair.  In each local step the method forms its gradient, corrections and penalties
included, asks the update for a direction and goes x ← x - α·direction.  The step size α and what is added to the
gradient stay the method's.  So does the proximal step, but its length is the update's to say (`reach`): the direction
is s times a gradient that stays as it is, and h must be given the same s, or the limit would be that of another h.
Like a method, an update is elementwise or reduces over the last axis, so that one client and a stack of them go through
the same lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Self

from torch import Tensor

from fedcef.core.layout import Layout
from fedcef.core.parts import validate
from fedcef.core.ranges import Scalar

State = dict[str, Tensor]
"""Named vectors."""

Metric = Literal["plain", "diagonal", "none"]
"""In what metric h is taken: lengths alike for all entries, one for each of them, or none that is closed."""


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

    def fit(self, layout: Layout) -> Self:
        """The update for vectors of this layout; most do not care."""
        return self

    def for_steps(self, steps: int) -> Self:
        """The update for a run in which a client of every round takes so many local steps; most do not care."""
        return self

    def after(self, steps: Tensor) -> Self:
        """The update for a round before which there were so many local steps, () int64 on the device."""
        return self

    @property
    def kept(self) -> bool:
        """Whether a client keeps the state from round to round, as part of its own; otherwise every round starts anew.

        The vectors of such a state are (p,) or (1,) for one client.
        """
        return False

    @property
    def metric(self) -> Metric:
        """What kind of lengths `reach` gives."""
        return "plain"

    def reach(self, state: State, step: int) -> Scalar | None:
        """s, if the direction of this step is s times the gradient wherever gradients have been alike so far.

        A proximal step that goes with it has the length α·s.  s is a number, or a tensor (..., 1), or (..., p) where
        the metric is diagonal; None stands for 1.

        Args:
            state: As it is after the step.
            step: The step's number in the round.
        """
        return None

    def gain(self, steps: int) -> float:
        """The mean of `reach` over a round of so many steps, if it is alike for all entries and clients; otherwise 1.

        A server that moves by the clients' mean change takes proximal steps that are longer by it.
        """
        return 1.0


@dataclass(frozen=True, eq=False)
class SGD(LocalUpdate):
    """Plain stochastic gradient descent: the direction is the gradient."""

    def update(self, gradient: Tensor, state: State, x: Tensor, step: int) -> tuple[Tensor, State]:
        return gradient, state
