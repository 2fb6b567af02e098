"""TernGrad: random rounding to 0 and ± the largest entry.

Wen, Xu, Yan, Wu, Wang, Chen, Li (2017, arXiv 1705.07878).  In a block of n entries ω(x) = max|x|·|x|₁/|x|² - 1, at
worst (√n - 1)/2, where one entry is 1 and the others are 1/(√n + 1).

Clipping cuts |x_j| to clip·(root mean square of the block) first.  That is biased: with y for what is left,
E|Q(y)/(1+ω) - x|² <= |x|² - <x,y>/(1+ω), and <x,y> >= min(1, clip/√n)|x|².  So it contracts, and is never unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcef.compressors.blocks import block_length, present_count, total
from fedcef.compressors.random_rounding import RandomRounding
from fedcef.core.rng import Key
from fedcef.wire import Payload


@dataclass(frozen=True, eq=False, kw_only=True)
class TernGrad(RandomRounding):
    """Random rounding to zero and plus or minus the block's largest entry (TernGrad)."""

    clip: Annotated[float, Field(ge=0)] = 0.0
    """Entries are first cut to this times the block's root mean square, 2.5 in the paper; 0: not."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """-1, 0 or 1 for each entry, and a scale for each block."""
        return self.rounded(x, 1, key)

    def top(self, unit: Tensor, dim: int) -> Tensor:
        """The largest entry, which is 1, or what entries are cut to."""
        one = torch.ones_like(unit[..., :1])
        if not self.clip:
            return one
        mean_square = total(unit.square()) / present_count(unit, dim)
        return torch.minimum(one, self.clip * mean_square.sqrt())

    def omega(self, dim: int) -> float:
        """(√n - 1)/2 in blocks of n."""
        return (sqrt(block_length(dim, self.block)) - 1) / 2

    def contraction(self, dim: int) -> float | None:
        """As for any random rounding; with `clip` see the top of the file."""
        if not self.clip:
            return super().contraction(dim)
        left = min(1, self.clip / sqrt(block_length(dim, self.block)))
        return None if self.unbiased else 1 - left / (1 + self.omega(dim))

    def variance(self, dim: int) -> float | None:
        """ω with `unbiased`, but None with `clip`, which is biased."""
        return None if self.clip else super().variance(dim)
