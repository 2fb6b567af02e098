"""Regularisers that depend on the order of entries: on their place in the vector (TV, fused lasso) or rank (SLOPE).

The proximal operators are exact; their common core is chain.py.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.core.ranges import Count, NonNegative
from fedcef.regularizers.chain import solve_chains
from fedcef.regularizers.regularizer import Regularizer, Step, soft_threshold, unless_still


@dataclass(frozen=True, eq=False, kw_only=True)
class _Chained(Regularizer, ABC):
    lengths: tuple[Count, ...] = ()
    """The lengths of consecutive chains; entries of different chains are not compared.  If none are given, `fit` takes
    a chain for each index of a tensor's first axis (the weights of one neuron or filter), and one for a tensor with a
    single axis.  Without `fit` the whole vector is one chain."""

    def fit(self, layout: Layout) -> Self:
        lengths = self.lengths
        if not lengths:
            shapes = [(1, *shape) if len(shape) < 2 else shape for shape in layout.shapes if 0 not in shape]
            lengths = tuple(math.prod(shape[1:]) for shape in shapes for _ in range(shape[0]))
        if sum(lengths) != layout.size:
            raise ConfigError(
                f"regularizer.lengths adds up to {sum(lengths)}; it must add up to the {layout.size} chosen entries."
            )
        return replace(self, lengths=lengths)

    @property
    def captures(self) -> bool:
        return False

    def starts(self, x: Tensor) -> Tensor:
        """Where chains begin: (p,) bool."""
        first = torch.zeros(x.shape[-1], dtype=torch.bool)
        first[torch.tensor((0, *self.lengths)).cumsum(0)[: max(1, len(self.lengths))]] = True
        return first.to(x.device)

    def variation(self, x: Tensor) -> Tensor:
        """The sum of |x_{j+1} - x_j| over neighbours of one chain: (..., p) -> (...)."""
        return x.diff(dim=-1).abs().masked_fill(self.starts(x)[1:], 0).sum(-1)

    def smooth_out(self, x: Tensor, threshold: Step) -> Tensor:
        """argmin_u threshold·variation(u) + ½|u - x|²."""
        return unless_still(threshold, x, solve_chains(x, self.starts(x), threshold, threshold).to(x.dtype))

    def variation_bound(self, dim: int) -> float:
        """The largest norm of a subgradient of the variation: inner entries see two neighbours, the ends one."""
        return math.sqrt(sum(4 * n - 6 for n in self.lengths or (dim,) if n > 1))


@dataclass(frozen=True, eq=False)
class TV(_Chained):
    """h(x) = weight·Σ_j |x_{j+1} - x_j|: piecewise constant along each chain."""

    weight: NonNegative = 1e-5
    """λ: how much h counts against the loss."""

    def value(self, x: Tensor) -> Tensor:
        return self.weight * self.variation(x)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return self.smooth_out(x, step * self.weight)

    def bounded_subgradient(self, dim: int) -> float:
        return self.weight * self.variation_bound(dim)


@dataclass(frozen=True, eq=False)
class FusedLasso(_Chained):
    """h(x) = weight·|x|_1 + fuse_weight·Σ_j |x_{j+1} - x_j|: sparse and piecewise constant along each chain.

    prox: that of the variation, then soft-threshold by step·weight, which is exact (Friedman et al. 2007).
    """

    weight: NonNegative = 1e-5
    """How much the entries themselves count."""
    fuse_weight: NonNegative = 1e-5
    """How much differences of neighbours count."""

    def value(self, x: Tensor) -> Tensor:
        return self.weight * x.abs().sum(-1) + self.fuse_weight * self.variation(x)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return soft_threshold(self.smooth_out(x, step * self.fuse_weight), step * self.weight)

    def bounded_subgradient(self, dim: int) -> float:
        return self.weight * math.sqrt(dim) + self.fuse_weight * self.variation_bound(dim)


@dataclass(frozen=True, eq=False)
class SLOPE(Regularizer):
    """Sorted l1 norm (Bogdan et al. 2015): h(x) = Σ_i λ_i·|x|_(i), |x|_(1) >= |x|_(2) >= ..., λ_1 >= ... >= λ_p >= 0.

    Sparse, and entries of similar size become equal.  prox: sort |x|, subtract step·λ, project onto descending
    sequences (isotonic regression), cut off below 0, undo the sorting and restore signs.
    """

    weight: NonNegative = 1e-5
    """λ_1."""
    sequence: Literal["linear", "bh"] = "linear"
    """How λ falls: linearly (then h is OSCAR), or as the normal quantiles 1 - i·q/(2p) of Benjamini and Hochberg."""
    last: Annotated[float, Field(ge=0, le=1)] = 0.5
    """linear: λ_p/λ_1."""
    q: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """bh: the false discovery rate aimed at."""

    @property
    def captures(self) -> bool:
        return False

    def weights(self, dim: int, device: torch.device | str = "cpu") -> Tensor:
        """λ: (p,) float64, descending."""
        ranks = torch.arange(dim, dtype=torch.float64, device=device)
        if self.sequence == "linear":
            return self.weight * (1 - (1 - self.last) * ranks / max(1, dim - 1))
        quantiles: Tensor = torch.special.ndtri(1 - (ranks + 1) * self.q / (2 * dim))
        return self.weight * quantiles / quantiles[0]

    def value(self, x: Tensor) -> Tensor:
        ranked = x.abs().sort(-1, descending=True).values
        return (ranked * self.weights(x.shape[-1], x.device).to(x.dtype)).sum(-1)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        ranked, order = x.abs().double().sort(-1, descending=True)
        target = ranked - step * self.weights(x.shape[-1], x.device)
        # Where all entries before are at least as large as all after, the sequence can be cut.
        least_before = target.cummin(-1).values[..., :-1]
        most_after = target.flip(-1).cummax(-1).values.flip(-1)[..., 1:]
        starts = torch.nn.functional.pad(least_before >= most_after, (1, 0), value=True)
        size = solve_chains(target, starts, 0.0, math.inf).clamp_(min=0).to(x.dtype)
        return unless_still(step, x, torch.empty_like(x).scatter_(-1, order, size).copysign_(x))

    def bounded_subgradient(self, dim: int) -> float:
        return float(self.weights(dim).norm())
