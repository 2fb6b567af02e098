"""Convex regularisers that treat every entry by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.core.ranges import NonNegative
from fedcef.regularizers.regularizer import Regularizer, Step, soft_threshold


@dataclass(frozen=True, eq=False)
class Zero(Regularizer):
    """h = 0: a smooth problem."""

    def value(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x[..., 0])

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return x

    def bounded_subgradient(self, dim: int) -> float:
        return 0.0

    @property
    def elementwise(self) -> bool:
        return True

    @property
    def shrinkage(self) -> float:
        return 0.0


@dataclass(frozen=True, eq=False)
class L1(Regularizer):
    """h(x) = weight·|x|_1: sparse models."""

    weight: NonNegative = 1e-5
    """λ: how much h counts against the loss."""

    def value(self, x: Tensor) -> Tensor:
        return self.weight * x.abs().sum(-1)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return soft_threshold(x, step * self.weight)

    def bounded_subgradient(self, dim: int) -> float:
        return self.weight * math.sqrt(dim)

    @property
    def elementwise(self) -> bool:
        return True

    @property
    def shrinkage(self) -> float:
        return self.weight


@dataclass(frozen=True, eq=False)
class ElasticNet(Regularizer):
    """h(x) = weight·|x|_1 + (ridge/2)·|x|²: sparse and shrunk."""

    weight: NonNegative = 1e-5
    """How much the ℓ1 norm counts."""
    ridge: NonNegative = 1e-5
    """How much half the squared ℓ2 norm counts."""

    def value(self, x: Tensor) -> Tensor:
        return self.weight * x.abs().sum(-1) + 0.5 * self.ridge * x.square().sum(-1)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return soft_threshold(x, step * self.weight) / (1 + step * self.ridge)

    def bounded_subgradient(self, dim: int) -> float | None:
        return None if self.ridge else self.weight * math.sqrt(dim)

    @property
    def elementwise(self) -> bool:
        return True
