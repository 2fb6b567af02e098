"""Sparsifiers that go by blocks of equal length, which need no selection over the whole vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcef.compressors.blocks import norm, split
from fedcef.compressors.sparsifiers import Sparsifier, largest
from fedcef.core.rng import Key
from fedcef.wire import Payload

Length = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockwiseTopK(Sparsifier):
    """The largest entries of every block of equal length: each block keeps its share."""

    length: Length = 4096
    """The number of entries in a block."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """The largest entries of every block; a shorter last block keeps its share, too."""
        whole = x.shape[-1] // self.length * self.length
        kept = []
        if whole:
            blocks = split(x[..., :whole], self.length)
            starts = torch.arange(0, whole, self.length, device=x.device).unsqueeze(-1)
            kept.append((starts + largest(blocks, self.count(self.length))).flatten(-2))
        if rest := x.shape[-1] - whole:
            kept.append(whole + largest(x[..., whole:], self.count(rest)))
        return self.at(torch.cat(kept, dim=-1), x)

    def contraction(self, dim: int) -> float:
        """That of the worst block."""
        blocks, rest = divmod(dim, self.length)
        sizes = [self.length] * (blocks > 0) + [rest] * (rest > 0)
        values = blocks * self.count(self.length) + (self.count(rest) if rest else 0)
        return max(self.bound(self.count(size), size, values) for size in sizes)


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockTopK(Sparsifier):
    """The blocks with the largest norm: only norms are sorted, and what is kept is contiguous.

    What is left after the last whole block, less than one block, is always kept.
    """

    length: Length = 64
    """The number of entries in a block."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """The blocks of largest norm, and what is left after the last whole block."""
        whole = x.shape[-1] // self.length * self.length
        rest = torch.arange(whole, x.shape[-1], device=x.device).expand(*x.shape[:-1], -1)
        if not whole:
            return self.at(rest, x)
        norms = norm(split(x[..., :whole], self.length)).squeeze(-1)  # of each block, so that only a bad one is NaN
        starts = self.length * largest(norms, self.count(norms.shape[-1])).unsqueeze(-1)
        kept = starts + torch.arange(self.length, device=x.device)
        return self.at(torch.cat([kept.flatten(-2), rest], dim=-1), x)

    def contraction(self, dim: int) -> float:
        """1 - (1 - d²)m/M if m of M blocks are kept; 0 if there is no whole block and d² is 0."""
        blocks = dim // self.length
        values = self.length * self.count(blocks) + dim % self.length if blocks else dim
        return self.bound(self.count(blocks), blocks, values) if blocks else self.bound(dim, dim)
