"""Compressors that keep a few entries and drop the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcef.compressors.compressor import Compressor
from fedcef.layout import Layout
from fedcef.rng import Key, subset
from fedcef.wire import Payload, Seeded, Sparse, cast

Ratio = Annotated[float, Field(gt=0, le=1)]
ValueType = Literal["native", "float32", "float16", "bfloat16"]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Sparsifier(Compressor):
    ratio: Ratio = 0.1
    """The share of entries kept."""
    values: ValueType = "native"
    """How kept values travel; "native" is the type in which the algorithm computes."""

    def count(self, dim: int) -> int:
        """How many of `dim` entries are kept."""
        return max(1, int(self.ratio * dim))

    def as_sent(self, kept: Tensor) -> Tensor:
        """The kept values in the type in which they travel."""
        return kept if self.values == "native" else cast(kept, self.values)


@dataclass(frozen=True, eq=False, kw_only=True)
class TopK(_Sparsifier):
    """The largest entries in absolute value, over the whole vector; ties go to the lowest index."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        return self.keep(x)

    def keep(self, x: Tensor) -> Sparse:
        """C(x); nothing about it is random, so it needs no key."""
        indices = largest(x, self.count(x.shape[-1]))
        return Sparse(self.as_sent(x.gather(-1, indices)), indices, x.shape[-1])

    def contraction(self, dim: int) -> float:
        return 1 - self.count(dim) / dim


@dataclass(frozen=True, eq=False, kw_only=True)
class RandK(_Sparsifier):
    """Random entries; in a round all clients draw the same ones, so that no index is sent."""

    scaled: bool = False
    """Whether kept values are multiplied by p/k.  Then E C(x) = x and E|C(x) - x|² = (p/k - 1)|x|²: unbiased, for
    methods without error feedback, and no contraction.  As the draw is shared, a mean over clients is no less noisy."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        dim = x.shape[-1]
        count = self.count(dim)
        support = subset(key.shared, dim, count)
        kept = x[..., support]
        if self.scaled:
            kept = kept * (dim / count)
        return Seeded(self.as_sent(kept), key.shared, dim, support)

    def contraction(self, dim: int) -> float | None:
        kept_share = self.count(dim) / dim
        return None if self.scaled and kept_share < 1 else 1 - kept_share


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerwiseTopK(_Sparsifier):
    """The largest entries of every parameter tensor by itself: each layer keeps its share."""

    sizes: tuple[int, ...] = ()
    """The lengths of the stretches; `fit` takes those of the parameter tensors."""

    def fit(self, layout: Layout) -> LayerwiseTopK:
        return replace(self, sizes=layout.sizes)

    def compress(self, x: Tensor, key: Key) -> Payload:
        start, kept = 0, []
        for layer in torch.split(x, list(self.sizes) or x.shape[-1], dim=-1):
            kept.append(start + largest(layer, self.count(layer.shape[-1])))
            start += layer.shape[-1]
        indices = torch.cat(kept, dim=-1)
        return Sparse(self.as_sent(x.gather(-1, indices)), indices, x.shape[-1])

    def contraction(self, dim: int) -> float:
        return max(1 - self.count(size) / size for size in self.sizes or (dim,))


def largest(x: Tensor, count: int) -> Tensor:
    """Indices, ascending, of the `count` entries of each row with the largest absolute value; (..., count).

    Ties go to the lowest index.  Shapes do not depend on values, so nothing waits for the device.
    """
    dim = x.shape[-1]
    size = x.abs().reshape(-1, dim)
    smallest_kept = size.topk(count, dim=-1).values[:, -1:]
    above = ~(size <= smallest_kept)  # a NaN counts as large, as it does for topk
    ties = size == smallest_kept
    room = count - above.sum(-1, keepdim=True)
    keep = above | (ties & (ties.cumsum(-1, dtype=torch.int32) <= room))
    found = torch.nonzero_static(keep.flatten(), size=keep.shape[0] * count, fill_value=0)
    return (found.view(-1, count) % dim).reshape(*x.shape[:-1], count)
