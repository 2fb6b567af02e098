"""Compressors that keep a few entries and drop the rest.

If kept values travel with a relative error d² (value_coders.py), a share ρ >= k/p of the energy is kept (Top-k; Rand-k
in expectation), and the error is (1-ρ) + d²ρ <= 1 - (1-d²)k/p.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcef.compressors.blocks import Block, largest_size
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.value_coders import EXACT, ValueCoder, coded, coding_error
from fedcef.core.layout import Layout
from fedcef.core.rng import Key, subset
from fedcef.core.scan import running_count
from fedcef.wire import Payload, Seeded, Sparse, Values

Ratio = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sparsifier(Compressor):
    """A share of the entries, kept by some rule; the others are 0."""

    ratio: Ratio = 0.1
    """The share of entries kept."""
    values: ValueCoder = "native"
    """How kept values travel; "native" is the type in which the algorithm computes."""
    block: Block = 256
    """How many kept values share a scale, if they travel as multiples of one; 0: all."""

    def count(self, dim: int) -> int:
        """How many of `dim` entries are kept."""
        return max(1, int(self.ratio * dim))

    def as_sent(self, kept: Tensor) -> Tensor | Values:
        """The kept values as they travel."""
        return coded(kept, self.values, self.block)

    def at(self, indices: Tensor, x: Tensor) -> Sparse:
        """x at these indices, 0 elsewhere."""
        return Sparse(self.as_sent(x.gather(-1, indices)), indices, x.shape[-1])

    def bound(self, kept: int, dim: int, values: int | None = None) -> float:
        """q² if `kept` of `dim` entries are; the message has as many values, unless told that it has more."""
        return 1 - (1 - coding_error(self.values, values or kept, self.block)) * kept / dim


@dataclass(frozen=True, eq=False, kw_only=True)
class TopK(Sparsifier):
    """The largest entries in absolute value, over the whole vector; ties go to the lowest index."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """The largest entries and where they are."""
        return self.keep(x)

    def keep(self, x: Tensor) -> Sparse:
        """C(x); nothing about it is random, so it needs no key."""
        return self.at(largest(x, self.count(x.shape[-1])), x)

    def contraction(self, dim: int) -> float:
        """1 - (1 - d²)k/p."""
        return self.bound(self.count(dim), dim)


@dataclass(frozen=True, eq=False, kw_only=True)
class STC(TopK):
    """Sparse ternary compression: the largest entries, each sent as its sign, with one mean magnitude for all.

    Sattler, Wiedemann, Müller, Samek (2019, arXiv 1903.02891): Top-k with one scale for all values.
    """

    values: ValueCoder = "sign"
    block: Block = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class RandK(Sparsifier):
    """Random entries; in a round all clients draw the same ones, so that no index is sent."""

    unbiased: bool = False
    """Whether kept values are multiplied by p/k.  Then E C(x) = x and E|C(x) - x|² = (p/k - 1)|x|²: unbiased, for
    methods without error feedback, and no contraction.  As the draw is shared, a mean over clients is no less noisy."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """The entries drawn, and the key that they were drawn with."""
        dim = x.shape[-1]
        count = self.count(dim)
        support = subset(key.shared, dim, count)
        # a NaN that is not drawn must not stay behind unseen
        kept = x[..., support].masked_fill(~largest_size(x).isfinite(), torch.nan)
        if self.unbiased:
            kept = kept * (dim / count)
        return Seeded(self.as_sent(kept), key.shared, dim, support)

    def contraction(self, dim: int) -> float | None:
        """1 - (1 - d²)k/p in expectation; None with `unbiased` unless all are kept."""
        count = self.count(dim)
        return None if self.unbiased and count < dim else self.bound(count, dim)

    def variance(self, dim: int) -> float | None:
        """p/k - 1 with `unbiased` and values that travel exactly, otherwise None."""
        count = self.count(dim)
        return dim / count - 1 if (self.unbiased or count == dim) and self.values in EXACT else None


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerwiseTopK(Sparsifier):
    """The largest entries of each parameter tensor separately: every layer keeps its share."""

    sizes: tuple[int, ...] = ()
    """The lengths of the stretches; `fit` takes those of the parameter tensors."""

    def fit(self, layout: Layout) -> LayerwiseTopK:
        """The compressor for parameter tensors of these sizes."""
        return replace(self, sizes=layout.sizes)

    def compress(self, x: Tensor, key: Key) -> Payload:
        """The largest entries of each stretch."""
        start, kept = 0, []
        for layer in torch.split(x, list(self.sizes) or x.shape[-1], dim=-1):
            kept.append(start + largest(layer, self.count(layer.shape[-1])))
            start += layer.shape[-1]
        return self.at(torch.cat(kept, dim=-1), x)

    def contraction(self, dim: int) -> float:
        """That of the worst stretch."""
        sizes = self.sizes or (dim,)
        values = sum(map(self.count, sizes))
        return max(self.bound(self.count(size), size, values) for size in sizes)


def largest(x: Tensor, count: int) -> Tensor:
    """Indices, ascending, of the `count` entries of each row with the largest absolute value; (..., count).

    Ties go to the lowest index; a NaN is as large as an infinity, so that a vector that has one is seen to.  Shapes do
    not depend on values, so nothing waits for the device.
    """
    dim = x.shape[-1]
    size = x.abs().reshape(-1, dim)
    size = torch.where(size.isnan(), torch.inf, size)
    smallest_kept = size.topk(count, dim=-1).values[:, -1:]
    keep = size >= smallest_kept
    if x.device.type != "cpu" or int(keep.sum()) != keep.shape[0] * count:  # several of the smallest that is kept
        above = size > smallest_kept
        ties = size == smallest_kept
        room = count - above.sum(-1, keepdim=True)
        keep = above | (ties & (running_count(ties) <= room))
    found = torch.nonzero_static(keep.flatten(), size=keep.shape[0] * count, fill_value=0)
    return (found.view(-1, count) % dim).reshape(*x.shape[:-1], count)
