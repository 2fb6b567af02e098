"""Norms of groups of entries: whole filters, neurons, input features or layers become zero together.

Groups do not overlap.  `fit` finds them in the parameter tensors; entries that are in no group are not penalised.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.core.ranges import Count, NonNegative
from fedcef.regularizers.norms import length, shrinkage
from fedcef.regularizers.regularizer import Regularizer, Step, check_stretches, soft_threshold


class Block(NamedTuple):
    """Groups of one size: the stretch from `start` read as (before, groups, after), a group for each middle index."""

    start: int
    before: int
    groups: int
    after: int

    @property
    def stretch(self) -> slice:
        """Its place in the flat vector."""
        return slice(self.start, self.start + self.before * self.groups * self.after)

    @property
    def size(self) -> int:
        """The number of entries in each group."""
        return self.before * self.after

    def of(self, x: Tensor) -> Tensor:
        """(..., p) -> (..., before, groups, after)."""
        return x[..., self.stretch].reshape(*x.shape[:-1], self.before, self.groups, self.after)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Grouped(Regularizer, ABC):
    by: Literal["output", "input", "tensor"] = "output"
    """What a group is: all weights into one neuron or filter (an index of a tensor's first axis), all weights out of
    one input (of its second axis), or a whole tensor.  Tensors with fewer than two axes (biases) are left alone."""
    sizes: tuple[Count, ...] = ()
    """Groups of your own instead: the lengths of consecutive stretches, from the first chosen entry on."""
    scale: Literal["sqrt_size", "none"] = "sqrt_size"
    """w_g: the root of the group's size, so that large and small groups are treated alike, or 1."""
    blocks: tuple[Block, ...] = ()
    """Where the groups are; `fit` finds them by `sizes` or `by`.  Without all of these, all entries are one group."""

    def fit(self, layout: Layout) -> Self:
        found = self.blocks or _consecutive(self.sizes)
        given = "regularizer.blocks" if self.blocks else "regularizer.sizes"
        check_stretches(given, [block.stretch for block in found], layout.size)
        found = found or tuple(
            _block(self.by, stretch.start, shape)
            for _, stretch, shape in layout.segments()
            if len(shape) >= 2 and 0 not in shape
        )
        if not found:
            raise ConfigError(
                f"The regulariser finds no groups: none of {', '.join(layout.names)} has two or more axes.  Choose "
                "other parameters with regularizer.on, or give regularizer.sizes."
            )
        return replace(self, blocks=found)

    def blocks_of(self, dim: int) -> tuple[Block, ...]:
        """The groups of vectors of this length."""
        return self.blocks or _consecutive(self.sizes) or (Block(0, 1, 1, dim),)

    def group_scale(self, block: Block) -> float:
        """w_g of the groups of a block."""
        return math.sqrt(block.size) if self.scale == "sqrt_size" else 1.0

    def group_norms(self, x: Tensor) -> Iterator[Tensor]:
        """w_g·|x_g|_2, block by block: (..., groups)."""
        for block in self.blocks_of(x.shape[-1]):
            yield self.group_scale(block) * length(block.of(x), (-3, -1))

    def shrink(self, x: Tensor, threshold: Step) -> Tensor:
        """x_g·max(1 - threshold·w_g/|x_g|_2, 0) for every group."""
        result = x.clone()
        for block in self.blocks_of(x.shape[-1]):
            groups = block.of(x)
            kept = shrinkage(length(groups, (-3, -1)), threshold * self.group_scale(block))
            result[..., block.stretch] = (groups * kept[..., None, :, None]).flatten(-3)
        return result

    def subgradient_bound(self, dim: int) -> float:
        """√(Σ_g w_g²)."""
        return math.sqrt(sum(b.groups * self.group_scale(b) ** 2 for b in self.blocks_of(dim)))


@dataclass(frozen=True, eq=False)
class GroupLasso(_Grouped):
    """h(x) = weight·Σ_g w_g·|x_g|_2: whole groups become zero.

    prox: x_g·max(1 - step·weight·w_g/|x_g|_2, 0).
    """

    weight: NonNegative = 1e-5
    """λ: how much h counts against the loss."""

    def value(self, x: Tensor) -> Tensor:
        return self.weight * _total(norms.sum(-1) for norms in self.group_norms(x))

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return self.shrink(x, step * self.weight)

    def bounded_subgradient(self, dim: int) -> float:
        return self.weight * self.subgradient_bound(dim)


@dataclass(frozen=True, eq=False)
class SparseGroupLasso(_Grouped):
    """h(x) = weight·|x|_1 + group_weight·Σ_g w_g·|x_g|_2, both over grouped entries: few groups, sparse within.

    prox: soft-threshold by step·weight, then shrink the groups by step·group_weight, which is exact (Friedman, Hastie,
    Tibshirani 2010).
    """

    weight: NonNegative = 1e-5
    """How much the entries themselves count."""
    group_weight: NonNegative = 1e-5
    """How much the norms of the groups count."""

    def value(self, x: Tensor) -> Tensor:
        sizes = (block.of(x).abs().sum((-3, -2, -1)) for block in self.blocks_of(x.shape[-1]))
        groups = (norms.sum(-1) for norms in self.group_norms(x))
        return self.weight * _total(sizes) + self.group_weight * _total(groups)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        thin = x.clone()
        for block in self.blocks_of(x.shape[-1]):
            thin[..., block.stretch] = soft_threshold(x[..., block.stretch], step * self.weight)
        return self.shrink(thin, step * self.group_weight)

    def bounded_subgradient(self, dim: int) -> float:
        grouped = sum(b.groups * b.size for b in self.blocks_of(dim))
        return self.weight * math.sqrt(grouped) + self.group_weight * self.subgradient_bound(dim)


def _total(parts: Iterator[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0)


def _block(by: str, start: int, shape: tuple[int, ...]) -> Block:
    """The groups of one tensor."""
    if by == "output":
        return Block(start, 1, shape[0], math.prod(shape[1:]))
    if by == "input":
        return Block(start, shape[0], shape[1], math.prod(shape[2:]))
    return Block(start, 1, 1, math.prod(shape))


def _consecutive(sizes: tuple[int, ...]) -> tuple[Block, ...]:
    """Groups that lie one after the other; neighbours of one size make a block."""
    blocks, start = [], 0
    for size, alike in groupby(sizes):
        blocks.append(Block(start, 1, len(list(alike)), size))
        start = blocks[-1].stretch.stop
    return tuple(blocks)
