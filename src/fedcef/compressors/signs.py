"""Compressors to one bit an entry.

Scaled sign, of EF-signSGD (Karimireddy, Rebjock, Stich, Jaggi 2019, arXiv 1901.09847): (|x|₁/n) sign x, error |x|² -
|x|₁²/n.  One bit (Seide, Fu, Droppo, Li, Yu 2014): the mean of the negative and the mean of the other entries, which
is no worse, for ± one number is a choice of two.  Here both have scales by block, where entries differ in size from
one stretch of the vector to the next.  A zero counts as positive.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.compressors.blocks import Block, block_length, divided, join, largest_size, present, split, total
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.value_coders import coded
from fedcef.core.rng import Key
from fedcef.wire import Dense, LevelTables, Payload


@dataclass(frozen=True, eq=False, kw_only=True)
class ScaledSign(Compressor):
    """Signs times the mean magnitude of their block (EF-signSGD)."""

    block: Block = 1024
    """How many entries share a scale; 0: all, as published."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """A sign for each entry and a mean magnitude for each block."""
        return Dense(coded(x, "sign", self.block))

    def contraction(self, dim: int) -> float:
        """1 - 1/n in blocks of n."""
        return 1 - 1 / block_length(dim, self.block)


@dataclass(frozen=True, eq=False, kw_only=True)
class OneBit(Compressor):
    """One bit per entry: the mean of its block's negative entries, or that of the others (1-bit SGD)."""

    block: Block = 1024
    """How many entries share the two means; 0: all."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """A bit for each entry and two means for each block."""
        blocks, filled = split(x, self.block), present(x, self.block)
        size = largest_size(blocks)
        unit = divided(blocks, size)
        below = blocks < 0
        above = ~below if filled is None else ~below & filled
        means = [divided(total(unit * part), total(part)) * size for part in (below, above)]
        table = torch.cat(means, dim=-1).to(torch.float32)
        return Dense(LevelTables(join(~below, x.shape[-1]).to(torch.uint8), table, 1, self.block))

    def contraction(self, dim: int) -> float:
        """1 - 1/n in blocks of n."""
        return 1 - 1 / block_length(dim, self.block)
