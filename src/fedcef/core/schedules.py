"""Step sizes that change from round to round.

A schedule is a factor on `local_lr` or `server_lr`, 1 at the start.  Everything that follows from a step size (proximal
steps, β = α·η_g·K) follows the scheduled one, and everyone computes it from the round number, so that nothing is sent.
The factor is a tensor on the round number's device: a captured round computes its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.ranges import Count, Fraction, UnitInterval


class Schedule(ABC):
    """A factor on a step size, by the number of the round."""

    @abstractmethod
    def factor(self, round_: Tensor) -> Tensor:
        """The factor in a round (counted from 0), float64; both 0-dim."""

    def for_rounds(self, rounds: int) -> Schedule:
        """The schedule of a run of so many rounds; most do not care."""
        return self


@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """The same step in every round."""

    def factor(self, round_: Tensor) -> Tensor:
        return torch.ones_like(round_, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Half a cosine from 1 in the first round to `final` after the last."""

    final: UnitInterval = 0.0
    """The factor at the end."""
    rounds: Annotated[int, Field(ge=0)] = 0
    """After how many rounds the factor is `final`; 0 = those of the run."""

    def factor(self, round_: Tensor) -> Tensor:
        if not self.rounds:
            raise ConfigError("A cosine schedule must know the number of rounds; give Cosine(rounds=...).")
        progress = (round_.to(torch.float64) / self.rounds).clamp(max=1.0)
        return self.final + (1 - self.final) * 0.5 * (1 + torch.cos(math.pi * progress))

    def for_rounds(self, rounds: int) -> Cosine:
        return self if self.rounds else replace(self, rounds=rounds)


@dataclass(frozen=True, kw_only=True)
class Step(Schedule):
    """Multiplied by `decay` after every `every` rounds."""

    every: Count = 100
    """After how many rounds the step shrinks, each time."""
    decay: Fraction = 0.5
    """What it is then multiplied by."""

    def factor(self, round_: Tensor) -> Tensor:
        return self.decay ** (round_ // self.every).to(torch.float64)


SCHEDULES: dict[str, type[Schedule]] = {"constant": Constant, "cosine": Cosine, "step": Step}
