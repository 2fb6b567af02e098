"""Constraints: h is 0 on a convex set C and infinite outside; the prox is the projection onto C
whatever the step, 0 included.

`value` allows for rounding: a point that is off by less than a thousand units in the last place counts as inside.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.ranges import Positive
from fedcef.regularizers.regularizer import Regularizer, Step


class Constraint(Regularizer, ABC):
    """A regulariser that is 0 on a convex set and infinite outside."""

    def subgradient(self, x: Tensor) -> Tensor:
        raise ConfigError(
            f"The constraint {type(self).__name__} has no subgradient outside its set; use a method with a proximal "
            "step (for the smooth methods: algorithm.composite = 'server_prox')."
        )

    def bounded_subgradient(self, dim: int) -> None:
        return None


@dataclass(frozen=True, eq=False)
class Box(Constraint):
    """C = {lower <= x_j <= upper}.  prox: clip.  Bounds may be infinite: lower = 0, upper = inf is the orthant."""

    lower: float = -1.0
    """The least value of an entry."""
    upper: float = 1.0
    """The greatest value of an entry."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lower <= self.upper:
            raise ConfigError(
                f"regularizer.lower is {self.lower}; it must not exceed regularizer.upper = {self.upper}."
            )

    def value(self, x: Tensor) -> Tensor:
        return indicator(((x >= self.lower) & (x <= self.upper)).all(-1), x)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return x.clamp(self.lower, self.upper)

    @property
    def elementwise(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Simplex(Constraint):
    """C = {x >= 0, Σ_j x_j = radius}, all chosen entries together.

    prox: max(x - θ, 0), with the θ for which the sum is right.
    """

    radius: Positive = 1.0
    """What the entries add up to."""

    def value(self, x: Tensor) -> Tensor:
        room = slack(x) * self.radius
        total = x.sum(-1, dtype=torch.float64)
        return indicator((x >= -room).all(-1) & ((total - self.radius).abs() <= room), x)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return to_simplex(x, self.radius)


@dataclass(frozen=True, eq=False)
class L1Ball(Constraint):
    """C = {|x|_1 <= radius}, all chosen entries together.

    prox: x itself inside; outside sign(x)·max(|x| - θ, 0), with the θ that leads to the boundary.
    """

    radius: Positive = 1.0
    """The largest ℓ1 norm."""

    def value(self, x: Tensor) -> Tensor:
        return indicator(x.abs().sum(-1, dtype=torch.float64) <= self.radius * (1 + slack(x)), x)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        size = x.abs()
        inside = size.sum(-1, keepdim=True, dtype=torch.float64) <= self.radius
        return torch.where(inside, x, to_simplex(size, self.radius).copysign_(x))


def to_simplex(x: Tensor, total: float) -> Tensor:
    """The nearest point that is not negative and adds up to `total`: (..., p) -> (..., p)."""
    below = x - x.amax(-1, keepdim=True)
    return (below - simplex_shift(below, total)).clamp_(min=0).to(x.dtype)


def simplex_shift(below: Tensor, total: Step) -> Tensor:
    """The θ <= 0 with Σ_j max(below_j - θ, 0) = total, where the largest entry of `below` is 0: (..., p) -> (..., 1).

    θ = max over k of (the sum of the k largest entries - total)/k; O(p log p) for sorting.  To measure from the largest
    entry, and to add in float64, keeps θ accurate when entries are much larger than the total.
    """
    ranked = below.sort(-1, descending=True).values
    ranks = torch.arange(1, below.shape[-1] + 1, dtype=torch.float64, device=below.device)
    return ((ranked.cumsum(-1, dtype=torch.float64) - total) / ranks).amax(-1, keepdim=True)


def indicator(inside: Tensor, x: Tensor) -> Tensor:
    """0 where inside, infinite elsewhere, in the type of x."""
    return torch.zeros_like(inside, dtype=x.dtype).masked_fill_(~inside, math.inf)


def slack(x: Tensor) -> float:
    """The relative violation of a constraint that is put down to rounding."""
    return 1000 * torch.finfo(x.dtype).eps
