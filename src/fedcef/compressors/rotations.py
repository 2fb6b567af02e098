"""DRIVE and EDEN: a random rotation makes all entries alike, and then few bits do for each.

Vargaftik et al. (2021, arXiv 2105.08339; 2022, arXiv 2108.08842).  In blocks of n entries y = H D x/√n with random
signs D and the Hadamard matrix H: each y_j is a sum of ±x_i/√n, close to normal if no few entries of x outweigh the
others. y·√n/|x| is rounded to the levels that are best for a normal number, b bits each (DRIVE: b = 1, signs), and
those are rotated back with a scale S: the best one, S = <y,l>/|l|², or |x|²/<y,l>, with which <C(x), x> = |x|².

**q² of the best scale.**  E over the signs, for every x.  One bit: E|y_j| >= |x|/√(2n) (Khintchine's inequality with
Szarek's constant), so |x|² - E|y|₁²/n <= |x|²/2; two equal entries attain it.  More bits: √n·y_j/|x| has E z² = 1,
E|z| >= 1/√2 and moments E z⁴ <= 3, E z⁶ <= 15, ... of the normal distribution; the constants below are the largest E(z
- level)² that these allow (by linear programming; tests/compressors/test_rotations.py).  For long blocks and vectors
without dominant entries the errors are those of normal numbers, `TYPICAL`.

**Unbiased?**  With a uniformly random rotation the second scale would make C unbiased.  With H D it is so only in the
limit of vectors without dominant entries: a single entry that outweighs all others hides them.  So no ω is stated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field
from torch import Tensor

from fedcef.compressors.blocks import as_scales, best_multiple, divided, largest_size, split, total
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.levels import levels_at, nearest
from fedcef.core.rng import Key
from fedcef.wire import Levels, Payload, Rotated, rotate

WORST = {1: 0.5, 2: 0.3063, 3: 0.0964, 4: 0.0275}
"""q² by bits."""
TYPICAL = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009501}
"""The mean squared error of the best levels for a standard normal number, by bits."""


def _power_of_two(block: int) -> int:
    if block & (block - 1):
        raise ValueError(f"a power of two, such as {1 << block.bit_length()}")
    return block


RotationBlock = Annotated[int, Field(ge=2, le=2**16), AfterValidator(_power_of_two)]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Rotation(Compressor):
    block: RotationBlock = 1024
    """How many entries are rotated together and share a scale: a power of two."""
    unbiased: bool = False
    """Whether to scale so that, for vectors without dominant entries, E C(x) = x; otherwise C is a contraction."""

    def rotated(self, x: Tensor, bits: int, key: Key) -> Payload:
        """x in so many bits an entry; each client has its own rotation, so that their errors do not add up."""
        dim = x.shape[-1]
        block = min(self.block, 1 << (dim - 1).bit_length())
        y = split(rotate(x, key.own, block), block)
        size = largest_size(y)
        unit = divided(y, size)
        energy = total(unit.square())
        table = "sign" if bits == 1 else f"normal{bits}"
        codes = nearest(divided(unit, (energy / block).sqrt().to(unit.dtype)), table)
        levels = levels_at(codes, table)
        scale = divided(energy, total(unit * levels)) if self.unbiased else best_multiple(unit, levels)
        coded = Levels(codes.flatten(-2), as_scales(scale, size), table, block)
        return Rotated(coded, key.own, dim, block)

    def bound(self, bits: int) -> float | None:
        return None if self.unbiased else WORST[bits]


@dataclass(frozen=True, eq=False, kw_only=True)
class Drive(_Rotation):
    """Signs after a random rotation (DRIVE): one bit per entry, for any vector."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """A sign for each entry of the rotated vector."""
        return self.rotated(x, 1, key)

    def contraction(self, dim: int) -> float | None:
        """1/2, or None with `unbiased`."""
        return self.bound(1)


@dataclass(frozen=True, eq=False, kw_only=True)
class Eden(_Rotation):
    """The best levels for normal numbers after a random rotation (EDEN): one to four bits per entry."""

    bits: Annotated[int, Field(ge=1, le=4)] = 2
    """Bits for each entry."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """The nearest level for each entry of the rotated vector."""
        return self.rotated(x, self.bits, key)

    def contraction(self, dim: int) -> float | None:
        """By bits, `WORST`; None with `unbiased`."""
        return self.bound(self.bits)
