"""Dropout masks from keys: which entries of a tensor are kept.

A mask takes 16 bits for an entry, four entries from each hash.  An entry is dropped with the multiple of 2^-16 that is
next to p, so with a probability that is off by at most 2^-17, and what is kept is divided by the probability that is
used: the mean of a mask is one.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcef.core import rng


@dataclass(frozen=True)
class Chance:
    """How often an entry is kept."""

    kept: int  # of 2^16 times

    @classmethod
    def of(cls, p: float) -> Chance:
        """For entries that are dropped with probability p."""
        return cls(round((1 - p) * 2**16))

    @property
    def always(self) -> bool:
        """Whether everything is kept, and nothing needs to be drawn."""
        return self.kept == 2**16

    @property
    def scale(self) -> float:
        """What a kept entry is multiplied by."""
        return 2**16 / self.kept if self.kept else 0.0

    def words(self, count: int) -> int:
        """How many places of a key's sequence so many entries use up."""
        return 0 if self.always else -(-count // 4)

    def draw(self, key: Tensor, count: int, start: int) -> Tensor:
        """Which of `count` entries are kept, (...) -> (..., count), by each key's sequence from place `start` on."""
        return rng.short_bits(key, count, start) < self.kept - 2**15
