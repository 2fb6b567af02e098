"""Norms of all chosen entries together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.core.ranges import NonNegative
from fedcef.regularizers.constraints import simplex_shift
from fedcef.regularizers.regularizer import Regularizer, Step


@dataclass(frozen=True, eq=False)
class L2Norm(Regularizer):
    """h(x) = weight·|x|_2, not squared: all entries are zero together, or none is.

    prox: x·max(1 - step·weight/|x|_2, 0).
    """

    weight: NonNegative = 1e-5
    """λ: how much h counts against the loss."""

    def value(self, x: Tensor) -> Tensor:
        return self.weight * length(x, -1)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return x * shrinkage(length(x, -1).unsqueeze(-1), step * self.weight)

    def bounded_subgradient(self, dim: int) -> float:
        return self.weight


@dataclass(frozen=True, eq=False)
class LInf(Regularizer):
    """h(x) = weight·max_j |x_j|: many entries share the largest size.

    prox: clip to [-θ, θ], where Σ_j max(|x_j| - θ, 0) = step·weight, or θ = 0 if |x|_1 is less.  This is x minus its
    projection onto the l1 ball of radius step·weight (Moreau).  O(p log p).
    """

    weight: NonNegative = 1e-5
    """λ: how much h counts against the loss."""

    def value(self, x: Tensor) -> Tensor:
        return self.weight * x.abs().amax(-1)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        size = x.abs()
        top = size.amax(-1, keepdim=True)
        shift = simplex_shift(size - top, step * self.weight)
        level = (top + shift).clamp(min=0).to(x.dtype)
        return torch.clamp(x, -level, level)

    def bounded_subgradient(self, dim: int) -> float:
        return self.weight


def length(x: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """The Euclidean norm over `dim`, whose squares neither overflow nor vanish; its gradient at 0 is 0."""
    unit = x.detach().abs().amax(dim, keepdim=True).clamp_(min=torch.finfo(x.dtype).tiny)
    scaled: Tensor = torch.linalg.vector_norm(x / unit, dim=dim)
    return scaled * unit.squeeze(dim)


def shrinkage(size: Tensor, threshold: Step) -> Tensor:
    """max(1 - threshold/size, 0): exactly 1 for a threshold of 0, and 0 for a size of 0 otherwise."""
    return (size - threshold).clamp_(min=0) / torch.where(size == 0, 1, size)
