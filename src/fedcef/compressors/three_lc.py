"""3LC: entries that are small against the largest become zero, the others a sign.

Lim, Andersen, Kaminsky (2019, arXiv 1802.07389).  In a block x_j becomes round(x_j/M) ∈ {-1, 0, 1} with M =
sparsity·max|x|, 1 <= sparsity < 2: entries below M/2 are dropped.  Ours: the scale is not M but the mean magnitude of
what is kept, which is best for these signs.  With k entries kept, the largest among them and the others at least half
of it, the error falls by |y|₁²/k >= max|x|² >= |x|²/n: q² = 1 - 1/n in blocks of n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedcef.compressors.blocks import (
    Block,
    as_scales,
    best_multiple,
    block_length,
    divided,
    join,
    largest_size,
    split,
)
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.levels import index_codes
from fedcef.core.rng import Key
from fedcef.wire import Dense, Levels, Payload


@dataclass(frozen=True, eq=False, kw_only=True)
class ThreeLC(Compressor):
    """Zero, or a sign where an entry is at least about half of its block's largest (3LC)."""

    sparsity: Annotated[float, Field(ge=1, lt=2)] = 1.0
    """The larger, the more entries become zero: those below sparsity/2 times the largest."""
    block: Block = 1024
    """How many entries share a scale; 0: all, as published."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """-1, 0 or 1 for each entry, and a scale for each block."""
        blocks = split(x, self.block)
        size = largest_size(blocks)
        unit = divided(blocks, size)
        signs = (unit.abs() >= self.sparsity / 2).to(x.dtype).copysign(unit)
        codes = index_codes(join(signs, x.shape[-1]), 1)
        return Dense(Levels(codes, as_scales(best_multiple(unit, signs), size), "ternary", self.block))

    def contraction(self, dim: int) -> float:
        """1 - 1/n in blocks of n."""
        return 1 - 1 / block_length(dim, self.block)
