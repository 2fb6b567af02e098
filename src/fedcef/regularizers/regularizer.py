"""The interface of a regulariser h: its value and its proximal operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

Step = float | Tensor
"""The length of a proximal step: one number, or a tensor that broadcasts over the clients' axes."""


class Regularizer(ABC):
    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """h(x): (..., p) -> (...)."""

    @abstractmethod
    def prox(self, x: Tensor, step: Step) -> Tensor:
        """argmin_u h(u) + |u - x|² / (2·step): (..., p) -> (..., p)."""

    def subgradient(self, x: Tensor) -> Tensor:
        """One subgradient of h at x, for methods that know no proximal step: (..., p) -> (..., p)."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            total = self.value(x).sum()
            if not total.requires_grad:
                return torch.zeros_like(x)
            return torch.autograd.grad(total, x)[0]


@dataclass(frozen=True, eq=False)
class OnParameters(Regularizer):
    """Another regulariser on the chosen entries of the vector, nothing on the rest.

    The inner one sees the chosen entries as a vector of their own.
    """

    inner: Regularizer
    chosen: Tensor
    """(q,) int64: positions in the flat vector."""

    def value(self, x: Tensor) -> Tensor:
        return self.inner.value(x[..., self.chosen.to(x.device)])

    def prox(self, x: Tensor, step: Step) -> Tensor:
        chosen = self.chosen.to(x.device)
        return x.index_copy(-1, chosen, self.inner.prox(x[..., chosen], step))


def soft_threshold(x: Tensor, threshold: Step) -> Tensor:
    """sign(x)·max(|x| - threshold, 0), as x minus its projection onto [-threshold, threshold].

    The subtraction gives exact zeros, and needs two passes instead of four.
    """
    inside = torch.clamp(x, -threshold, threshold)  # type: ignore[arg-type]
    return torch.sub(x, inside, out=inside)
