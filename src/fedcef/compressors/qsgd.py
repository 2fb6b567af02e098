"""QSGD: random rounding to fractions of the norm.

Alistarh, Grubic, Li, Tomioka, Vojnović (2017, arXiv 1610.02132).  With s levels in blocks of n entries, ω = min(n/s²,
√n/s); as a variance is at most a quarter of a squared step, ω = min(n/(4s²), √n/s).  That holds for fractions of
max|x| <= |x|₂, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcef.compressors.blocks import block_length, total
from fedcef.compressors.random_rounding import RandomRounding
from fedcef.core.rng import Key
from fedcef.wire import Payload


@dataclass(frozen=True, eq=False, kw_only=True)
class QSGD(RandomRounding):
    """Random rounding to equally spaced fractions of the block's norm (QSGD)."""

    levels: Annotated[int, Field(ge=1, le=127)] = 7
    """s: levels above zero.  1 takes up to 1.6 bits an entry, 2 to 7 up to 4 (Huffman-coded), more take 8."""
    norm: Literal["l2", "max"] = "l2"
    """What the levels are fractions of: the block's Euclidean norm, as published, or its largest entry."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """Each entry as a number of levels, and a scale for each block."""
        return self.rounded(x, self.levels, key)

    def top(self, unit: Tensor, dim: int) -> Tensor:
        """The block's Euclidean norm, or its largest entry, which is 1."""
        return total(unit.square()).sqrt() if self.norm == "l2" else torch.ones_like(unit[..., :1])

    def omega(self, dim: int) -> float:
        """min(n/(4s²), √n/s) in blocks of n."""
        count = block_length(dim, self.block)
        return min(count / (4 * self.levels**2), sqrt(count) / self.levels)
