"""What local updates with a memory share: weight decay, groups of parameters, step sizes over the run, kept memory.

The direction that an update has found is finished in one place:

    direction ← factor(n) · group factor · (direction + decay · x),    n = t·K + k, the number of the step in the run

factor(n) is min((n + 1)/warmup, 1) and, for a cosine, falls to `final` after the run's last step.  n follows from the
round's number, which is on the device, so that one recording of a round serves all of them.  Weight decay is decoupled:
it is added after the gradient has been scaled, as in AdamW.  Groups are stretches of the flat vector; those of
neighbouring tensors are joined.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import BeforeValidator
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.core.parts import BY_ENGINE
from fedcef.core.ranges import NonNegative, NotNegative, Positive, Scalar, UnitInterval
from fedcef.optimizers.local import LocalUpdate, State


def _one_is_a_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_one_is_a_list)]
"""Shell-style patterns of parameter names; a single one may stand by itself."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TunedUpdate(LocalUpdate, ABC):
    """A local update with a memory, and with what people tune about one."""

    weight_decay: NonNegative = 0.0
    """How much of x is added to the direction, after the gradient has been scaled."""
    no_decay: Patterns = ()
    """Names of parameters without weight decay, such as ["*bias", "*norm*"]."""
    lr_factors: dict[str, Positive] = field(default_factory=dict)
    """Factors on the step size by patterns of parameter names; the first that matches counts."""
    warmup: NotNegative = 0
    """Over how many local steps of the run the step size rises to its full length."""
    schedule: Literal["constant", "cosine"] = "constant"
    """How it goes on: the same, or down along half a cosine until the run's last local step."""
    final: UnitInterval = 0.0
    """Where the cosine ends."""
    memory: Literal["round", "client"] = "round"
    """How long the memory lasts: it starts anew in every round, or stays with the client."""
    layout: Layout | None = field(default=None, metadata=BY_ENGINE)
    total: NotNegative = field(default=0, metadata=BY_ENGINE)
    """How many local steps there are in the run, for the cosine."""
    before: Tensor | None = field(default=None, metadata=BY_ENGINE)
    """How many there were before this round, () int64; None outside of rounds, where the step size is the full one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "no_decay", _one_is_a_list(self.no_decay))
        if self.layout is None:
            return
        for option, patterns in (("no_decay", self.no_decay), ("lr_factors", tuple(self.lr_factors))):
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in self.layout.names):
                    raise ConfigError(
                        f"local_update.{option} has {pattern!r}, which matches no parameter; there are "
                        f"{', '.join(self.layout.names)}."
                    )

    @property
    def kept(self) -> bool:
        return self.memory == "client"

    def fit(self, layout: Layout) -> Self:
        return replace(self, layout=layout)

    def for_steps(self, steps: int) -> Self:
        return replace(self, total=steps) if self.schedule == "cosine" else self

    def after(self, steps: Tensor) -> Self:
        return replace(self, before=steps) if self.is_scheduled else self

    @property
    def is_scheduled(self) -> bool:
        """Whether the step size depends on the number of the step in the run."""
        return bool(self.warmup) or self.schedule != "constant"

    def count(self, state: State, x: Tensor) -> State:
        """What is remembered of the number of steps, beside the round's own count: none where each starts anew."""
        return {"n": state["n"] + 1 if "n" in state else x.new_zeros(1)} if self.kept else {}

    def lost(self, share: float, state: State, step: int) -> Scalar:
        """1 - share^n after n steps: how much of a running mean from zero is not the zero that it began with."""
        if "n" not in state:
            return -math.expm1((step + 1) * math.log(share)) if share else 1.0
        return -torch.expm1(state["n"] * math.log(share)) if share else torch.ones_like(state["n"])

    def factor(self, step: int) -> Scalar:
        """The factor on the step size in this step of the round: a number if it is always 1, else () float64."""
        if not self.is_scheduled or self.before is None:
            return 1.0
        n = (self.before + step).to(torch.float64)
        rising = ((n + 1) / self.warmup).clamp(max=1.0) if self.warmup else torch.ones_like(n)
        if self.schedule == "constant":
            return rising
        if not self.total:
            raise ConfigError("A cosine over all local steps must know how many there are; give for_steps(...).")
        progress = ((n - self.warmup) / max(1, self.total - self.warmup)).clamp(0.0, 1.0)
        return rising * (self.final + (1 - self.final) * 0.5 * (1 + torch.cos(math.pi * progress)))

    def repeats(self, step: int) -> float:
        """How often a gradient that stays as it is counts in this step of a round; more than once with momentum."""
        return 1.0

    def gain(self, steps: int) -> float:
        """The mean over a round of the factors on the step size, each times how often a gradient counts."""
        total: Any = sum(self.factor(k) * self.repeats(k) for k in range(steps))
        return total / steps  # type: ignore[no-any-return]  # or a tensor, as a scheduled step size is

    def finished(self, direction: Tensor, x: Tensor, step: int) -> Tensor:
        """A direction of the caller's own, with decay, groups and schedule; it is overwritten."""
        if self.weight_decay:
            for stretch, on in self._groups(lambda name: not matches(name, self.no_decay)):
                if on:
                    direction[..., stretch].add_(x[..., stretch], alpha=self.weight_decay)
        return self.scaled(direction, step)

    def scaled(self, lengths: Tensor, step: int) -> Tensor:
        """Directions or lengths (..., p) of the caller's own by the groups' factors and the schedule's; overwritten."""
        for stretch, by in self._groups(self._factor_of) if self.lr_factors else ():
            if by != 1:
                lengths[..., stretch].mul_(by)
        factor = self.factor(step)
        return lengths.mul_(factor) if isinstance(factor, Tensor) else lengths

    def _factor_of(self, name: str) -> float:
        return next((by for pattern, by in self.lr_factors.items() if fnmatchcase(name, pattern)), 1.0)

    def _groups(self, value: Callable[[str], float]) -> list[tuple[slice, float]]:
        """Stretches of the vector with the value that their parameters have; neighbours that agree are joined."""
        if self.layout is None:
            if self.no_decay or self.lr_factors:
                raise ConfigError("Groups of parameters need their names; fit(layout) the local update first.")
            return [(slice(None), value(""))]
        joined: list[tuple[slice, float]] = []
        for name, stretch, _ in self.layout.segments():
            own = value(name)
            if joined and joined[-1][1] == own:
                joined[-1] = (slice(joined[-1][0].start, stretch.stop), own)
            else:
                joined.append((stretch, own))
        return joined


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a parameter's name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
