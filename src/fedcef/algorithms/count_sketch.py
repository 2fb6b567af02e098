"""Count sketches: a few short sums of a long vector, from which its large entries can be told.

Charikar, Chen, Farach-Colton 2002.  Each of the rows deals all entries, with random signs, to its columns and adds up
what falls into one.  An entry's estimate is the median over the rows of the sums it fell into, with its sign taken off:
right where it outweighs those that it met.  The map is linear, so that the sketch of a mean is the mean of sketches.

Entries are dealt in a random order, one to each column in turn.  So columns get equally many, and with as many columns
as entries none meet: the sketch is then exact.  (With hash functions, as in the authors' csvec, some would.)  Sums are
taken in the order of the deal, one layer of entries after another: one vector and a stack, any number of threads and
every device give the same bits.  Order and signs are the same in all runs and rounds, for everyone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.core.rng import Purpose, bits, data_key


@dataclass(frozen=True)
class CountSketch:
    """The sketch of vectors of one length; (..., dim) to and from (..., rows·columns)."""

    rows: int
    columns: int
    dim: int

    def of(self, x: Tensor) -> Tensor:
        """The sketch of x."""
        rows = []
        for order, signs in self._deals(x):
            first, *others = torch.split((x * signs)[..., order], self.columns, dim=-1)
            row = torch.nn.functional.pad(first, (0, self.columns - first.shape[-1]))
            for layer in others:
                row[..., : layer.shape[-1]] += layer
            rows.append(row)
        return torch.cat(rows, dim=-1)

    def estimate(self, sketch: Tensor) -> Tensor:
        """What the entries of the sketched vector seem to be; of an even number of rows the lower median counts."""
        column = torch.arange(self.dim, device=sketch.device) % self.columns
        guesses = [
            torch.empty_like(row[..., column]).index_copy(-1, order, row[..., column]) * signs
            for row, (order, signs) in zip(torch.split(sketch, self.columns, dim=-1), self._deals(sketch), strict=True)
        ]
        return torch.stack(guesses).sort(dim=0).values[(self.rows - 1) // 2]

    def _deals(self, like: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The order in which each row deals the entries, and their signs, in the type and on the device of `like`."""
        for row in range(self.rows):
            draws = torch.arange(2 * row, 2 * row + 2, device=like.device)
            ranks, coins = bits(data_key(0, Purpose.COMPRESSION, draws), self.dim)
            yield ranks.argsort(stable=True), (1 - 2 * (coins & 1)).to(like.dtype)
