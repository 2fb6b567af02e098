"""Penalties of linear models: a weight for every coefficient, so that they mean the same however features are scaled.

Beside value and proximal step each says how it bends where it is smooth, which Newton steps ask for (newton.py).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcef.regularizers import Regularizer, Step, soft_threshold


class Penalty(Regularizer):
    """A regulariser that is smooth in its non-zero entries."""

    keeps_signs: ClassVar[bool]
    """Whether it has a kink wherever a penalised entry changes its sign."""

    @abstractmethod
    def is_free(self, chosen: Tensor) -> Tensor:
        """Which of the chosen entries are no reason for a kink, even at 0."""

    @abstractmethod
    def bend(self, x: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """First and second derivatives, (k,) and (k, k), in the k chosen entries of x, which are not 0, or free."""


@dataclass(frozen=True, eq=False)
class ElasticNet(Penalty):
    """h(x) = Σ_j l1_j·|x_j| + l2_j·x_j²/2."""

    l1: Tensor  # (p,)
    l2: Tensor  # (p,)
    keeps_signs: ClassVar[bool] = True

    def value(self, x: Tensor) -> Tensor:
        return (self.l1 * x.abs()).sum(-1) + 0.5 * (self.l2 * x.square()).sum(-1)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return soft_threshold(x, step * self.l1) / (1 + step * self.l2)

    def bounded_subgradient(self, dim: int) -> float | None:
        return None if self.l2.any() else float(self.l1.norm())

    def is_free(self, chosen: Tensor) -> Tensor:
        return self.l1[chosen] == 0

    def bend(self, x: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        x, l1, l2 = x[chosen], self.l1[chosen], self.l2[chosen]
        return l1 * x.sign() + l2 * x, torch.diag(l2)

    @property
    def elementwise(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class ByFeature(Penalty):
    """h(W, b) = Σ_j weights_j·|W_·j|_2 + l2_j·|W_·j|²/2: a feature is used for all outputs or for none.

    x is W, (outputs, features), flattened, and what follows it is free.
    """

    outputs: int
    weights: Tensor  # (features,)
    l2: Tensor  # (features,)
    keeps_signs: ClassVar[bool] = False

    def value(self, x: Tensor) -> Tensor:
        norms = self._matrix(x).norm(dim=-2)
        total: Tensor = (self.weights * norms + 0.5 * self.l2 * norms.square()).sum(-1)
        return total

    def prox(self, x: Tensor, step: Step) -> Tensor:
        matrix = self._matrix(x)
        step = step.unsqueeze(-1) if isinstance(step, Tensor) and step.ndim else step
        norms = matrix.norm(dim=-2, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
        shrunk = matrix * (1 - step * self.weights / norms).clamp(min=0) / (1 + step * self.l2)
        return torch.cat([shrunk.flatten(-2), x[..., self._size :]], -1)

    def bounded_subgradient(self, dim: int) -> float | None:
        return None if self.l2.any() else float(self.weights.norm())

    def is_free(self, chosen: Tensor) -> Tensor:
        return chosen >= self._size

    def bend(self, x: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        mine, feature, free = x[chosen], chosen % len(self.weights), self.is_free(chosen)
        norms = self._matrix(x).norm(dim=0)[feature]
        over = torch.where(free, 0.0, self.weights[feature] / norms)
        l2 = torch.where(free, 0.0, self.l2[feature])
        together = (feature.unsqueeze(-1) == feature) & ~free & ~free.unsqueeze(-1)
        along = mine / norms.clamp(min=torch.finfo(x.dtype).tiny)
        outer = torch.where(together, (over * along).unsqueeze(-1) * along, 0.0)
        return (over + l2) * mine, torch.diag(over + l2) - outer

    @property
    def _size(self) -> int:
        return self.outputs * len(self.weights)

    def _matrix(self, x: Tensor) -> Tensor:
        return x[..., : self._size].reshape(*x.shape[:-1], self.outputs, -1)


@dataclass(frozen=True)
class Strength:
    """How strong a penalty is on the features as they were given."""

    l1: float
    l2: float = 0.0
    by_feature: bool = False
    """Whether the l1 part is of the norms of features' coefficients for all outputs."""

    def penalty(self, scale: Tensor, outputs: int, intercept: bool) -> Penalty:
        """The same penalty for features that were divided by their scales, (d,); the intercepts are free."""
        l1, l2 = self.l1 / scale, self.l2 / scale.square()
        if self.by_feature:
            return ByFeature(outputs, l1, l2)
        free = scale.new_zeros(outputs if intercept else 0)
        return ElasticNet(torch.cat([l1.repeat(outputs), free]), torch.cat([l2.repeat(outputs), free]))
