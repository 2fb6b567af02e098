"""Random rounding to equally spaced levels, so that the expectation is right: what QSGD and TernGrad have in common.

In a block with a size S, u = |x_j|·s/S becomes floor(u) or floor(u) + 1, the latter with probability u - floor(u), and
Q(x)_j = sign(x_j)·S/s times that: E Q(x) = x and E|Q(x) - x|² <= ω|x|².  So Q/(1+ω) is a contraction with q² =
ω/(1+ω).

Ours: what is sent instead is the multiple of Q(x) that is nearest to x, block by block.  On average it is no further
from x than Q/(1+ω), and never further than 0 is; it costs nothing, since a scale is sent in any case.  `unbiased`
sends Q.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.compressors.blocks import Block, as_scales, best_multiple, divided, join, largest_size, split
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.levels import index_codes
from fedcef.core.rng import Key, uniform
from fedcef.wire import TABLES, Dense, Levels, Payload


@dataclass(frozen=True, eq=False, kw_only=True)
class RandomRounding(Compressor):
    """Random rounding to equally spaced levels of each block; what the levels are fractions of is up to the method."""

    block: Block = 128
    """How many entries share a scale; 0: all."""
    unbiased: bool = False
    """Whether E C(x) = x, for methods without error feedback; otherwise C is a contraction."""

    @abstractmethod
    def omega(self, dim: int) -> float:
        """ω of Q."""

    @abstractmethod
    def top(self, unit: Tensor, dim: int) -> Tensor:
        """The size S of each block, (..., blocks, 1), where the largest entry is 1; what is above it is cut off."""

    def contraction(self, dim: int) -> float | None:
        """ω/(1+ω); with `unbiased` ω, if that is below 1."""
        omega = self.omega(dim)
        if self.unbiased:
            return omega if omega < 1 else None
        return omega / (1 + omega)

    def variance(self, dim: int) -> float | None:
        """ω with `unbiased`, otherwise None."""
        return self.omega(dim) if self.unbiased else None

    def rounded(self, x: Tensor, levels: int, key: Key) -> Payload:
        """What is sent for x with so many levels above zero."""
        dim = x.shape[-1]
        blocks = split(x, self.block)
        size = largest_size(blocks)
        unit = divided(blocks, size)
        top = self.top(unit, dim).to(x.dtype)
        noise = split(uniform(key.own, dim), self.block)
        steps = torch.floor(divided(unit, top).abs() * levels + noise).clamp(max=levels).to(x.dtype).copysign(unit)
        scale = top / levels if self.unbiased else best_multiple(unit, steps)
        table = "ternary" if levels == 1 else "uniform4" if levels <= 7 else "uniform8"
        half = len(TABLES[table].levels) // 2  # steps of the table; those beyond `levels` stay unused
        codes = index_codes(join(steps, dim), half)
        return Dense(Levels(codes, as_scales(scale * half, size), table, self.block))
