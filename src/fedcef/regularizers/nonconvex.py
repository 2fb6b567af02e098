"""Regularisers that, unlike the l1 norm, leave large entries as they are.

MCP and SCAD are ρ-weakly convex.  Their prox is continuous for steps below 1/ρ, as in the formulas here; from there on
it jumps, and what is returned is still a point with the least value (at a jump: the smaller one).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.ranges import NonNegative, Positive
from fedcef.regularizers.regularizer import Regularizer, Step, soft_threshold


@dataclass(frozen=True, eq=False)
class L0(Regularizer):
    """h(x) = weight·(the number of entries that are not zero).

    prox: x_j if |x_j| > √(2·step·weight), otherwise 0; at equality both have the least value.
    """

    weight: NonNegative = 1e-5
    """λ: how much h counts against the loss."""

    def value(self, x: Tensor) -> Tensor:
        return self.weight * (x != 0).sum(-1).to(x.dtype)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return torch.where(x.abs() <= (2 * self.weight * step) ** 0.5, 0, x)

    def subgradient(self, x: Tensor) -> Tensor:
        raise ConfigError(
            "The regulariser l0 is a count and has no useful subgradient; use a method with a proximal step (for the "
            "smooth methods: algorithm.composite = 'server_prox')."
        )

    def bounded_subgradient(self, dim: int) -> None:
        return None

    @property
    def weak_convexity(self) -> float:
        return math.inf

    @property
    def elementwise(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class MCP(Regularizer):
    """Minimax concave penalty (Zhang 2010): h(x) = Σ_j weight·m - m²/(2γ), m = min(|x_j|, γ·weight).

    The slope falls linearly from `weight` at 0 to nothing at γ·weight.  ρ = 1/γ.  prox, for step < γ: x_j if
    |x_j| > γ·weight, otherwise soft(x_j, step·weight)/(1 - step/γ).  For step >= γ: x_j if |x_j| > weight·√(γ·step),
    otherwise 0.
    """

    weight: NonNegative = 1e-5
    """λ: how much h counts against the loss."""
    gamma: Positive = 3.0
    """γ: entries above γ·weight are not penalised further; must exceed every proximal step."""

    def value(self, x: Tensor) -> Tensor:
        m = x.abs().clamp(max=self.gamma * self.weight)
        return (self.weight * m - m.square() / (2 * self.gamma)).sum(-1)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        size = x.abs()
        t = as_tensor(step, x)
        smooth = t < self.gamma
        shrunk = soft_threshold(x, t * self.weight) / torch.where(smooth, 1 - t / self.gamma, 1)
        limit = self.weight * torch.where(smooth, self.gamma, (self.gamma * t).sqrt())
        return torch.where(size <= limit, torch.where(smooth, shrunk, 0), x)

    def bounded_subgradient(self, dim: int) -> float:
        return self.weight * math.sqrt(dim)

    @property
    def weak_convexity(self) -> float:
        return 1 / self.gamma


@dataclass(frozen=True, eq=False)
class SCAD(Regularizer):
    """Smoothly clipped absolute deviation (Fan and Li 2001).

    h(x) = Σ_j weight·m - max(m - weight, 0)²/(2(a-1)), m = min(|x_j|, a·weight): the l1 norm up to `weight`, then a
    slope that falls linearly to nothing at a·weight.  ρ = 1/(a-1).  prox, for step < a-1:

        soft(x_j, step·weight)                                     if |x_j| <= (1 + step)·weight,
        ((a-1)·x_j - sign(x_j)·a·step·weight) / (a-1-step)         if it is larger but <= a·weight,
        x_j                                                        otherwise.

    For step >= a-1: x_j if |x_j| > T, otherwise soft(x_j, step·weight), where T = weight·(a+1+step)/2 for step < a+1
    and T = weight·√((a+1)·step) beyond.
    """

    weight: NonNegative = 1e-5
    """λ: how much h counts against the loss."""
    a: Annotated[float, Field(gt=2, allow_inf_nan=False)] = 3.7
    """Entries above a·weight are not penalised further; a-1 must exceed every proximal step."""

    def value(self, x: Tensor) -> Tensor:
        m = x.abs().clamp(max=self.a * self.weight)
        bent = (m - self.weight).clamp(min=0).square() / (2 * (self.a - 1))
        return (self.weight * m - bent).sum(-1)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        size, a, weight = x.abs(), self.a, self.weight
        t = as_tensor(step, x)
        smooth = t < a - 1
        soft = soft_threshold(x, t * weight)
        middle = soft_threshold(x, a * t * weight / (a - 1)) * torch.where(smooth, (a - 1) / (a - 1 - t), 1)
        jump = torch.where(t < a + 1, (a + 1 + t) / 2, ((a + 1) * t).sqrt())
        near = torch.where(smooth & (size > (1 + t) * weight), middle, soft)
        return torch.where(size <= weight * torch.where(smooth, a, jump), near, x)

    def bounded_subgradient(self, dim: int) -> float:
        return self.weight * math.sqrt(dim)

    @property
    def weak_convexity(self) -> float:
        return 1 / (self.a - 1)


def as_tensor(step: Step, x: Tensor) -> Tensor:
    """The step in the type and on the device of x, without a copy from the host."""
    return step.to(x) if isinstance(step, Tensor) else x.new_full((), step)
