"""Messages that add up: whole numbers on one grid that all clients of a round share.

    y = H D x/√n, block by block, with signs D from the round's key (without a rotation y = x)
    q = ⌊clamp(y_S/Δ, ±L) + u⌋,      S drawn from the round's key (without Rand-k all entries),  u uniform on [0, 1)

and C(x) is q·Δ, put back in its places and rotated back.  Signs, places and grid are the same for everyone, so that the
sum of the q says what the mean of the C(x) is: it is all that a server under secure aggregation has
(docs/guides/secure_aggregation.md).  With L = 2^(bits-1) - 1 a sum of S clients lies within ±S·L, and modulo 2^b it is
itself if 2^b > 2·S·L: that is how many bits each number takes, masked or not.

The step Δ is a power of two, at least range/L.  So sums of q·Δ are exact in float32 up to 2^24 steps, in any order, and
the simulator, which adds up decoded numbers, has the bits of a server that adds up whole ones.

Rounding is unbiased; what lies beyond the range is cut off, which is not.  With `clip` the norm of y_S is bounded
first, and that of q as well: rounding makes it longer by at most `stretched`, or else all is rounded towards zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.compressors.blocks import largest_size, norm
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.on_grid import EXACT_BITS, OnGrid, places
from fedcef.core.errors import ConfigError
from fedcef.core.rng import Key, uniform
from fedcef.wire import Payload, rotate
from fedcef.wire.forms.rotated import padded_size

RARE = 1e-6
"""How rarely rounding makes a clipped vector longer than `stretched` says."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Grid(Compressor):
    """Random rounding to a grid that all clients share, of all entries or of those that all draw alike."""

    range: float
    """R: the largest magnitude of an entry, after the rotation; what is beyond is cut off."""
    bits: int = 8
    """Bits for the numbers of one client: ±(2^(bits-1) - 1)."""
    block: int = 128
    """How many entries are rotated together; 0 = no rotation."""
    ratio: float = 1.0
    """The share of entries that the round draws; the others are not sent."""
    unbiased: bool = False
    """Whether decoded values are multiplied by 1/ratio."""
    clients: int = 1
    """S: how many are added up; the numbers get so many more bits that their sum fits."""
    clip: float = 0.0
    """The largest norm of what is sent, but for rounding; 0 = any."""

    def __post_init__(self) -> None:
        if self.width > EXACT_BITS:
            raise ConfigError(
                f"Sums of {self.clients} numbers of {self.bits} bits take {self.width}; at most {EXACT_BITS} are exact."
                "  Take fewer bits (secure.bits), or fewer clients (clients_per_round)."
            )

    @property
    def largest(self) -> int:
        """L: the largest number of a client."""
        return (1 << self.bits - 1) - 1

    @property
    def width(self) -> int:
        """b: bits on the wire, so that modulo 2^b every sum from -S·L to S·L is itself."""
        return max(2, (2 * self.clients * self.largest).bit_length())

    @property
    def exponent(self) -> int:
        """Of the step: the smallest power of two with which L steps reach the range."""
        fraction, exponent = math.frexp(self.range / self.largest)
        return exponent - 1 if fraction == 0.5 else exponent

    @property
    def step(self) -> float:
        """Δ."""
        return 2.0**self.exponent

    def count(self, dim: int) -> int:
        """How many numbers are sent for a vector of this length."""
        entries = padded_size(dim, self.rotation(dim)) if self.block else dim
        return max(1, int(self.ratio * entries))

    def rotation(self, dim: int) -> int:
        """The block of the rotation for vectors of this length."""
        return min(self.block, 1 << (dim - 1).bit_length())

    def compress(self, x: Tensor, key: Key) -> Payload:
        """The numbers on the grid, and the key that says what they are of."""
        dim, block = x.shape[-1], self.rotation(x.shape[-1])
        y = rotate(x, key.shared, block) if block else x
        if (count := self.count(dim)) < y.shape[-1]:
            y = y[..., places(key.shared, y.shape[-1], count)]
        y = y.double()
        if self.clip:
            y = y * (self.clip / norm(y).clamp(min=self.clip))
        inside = (y / self.step).clamp(-self.largest, self.largest)
        steps = torch.floor(inside + uniform(key.own, count))
        if self.clip:
            steps = torch.where(norm(steps) * self.step > self.stretched(dim), inside.trunc(), steps)
        # a NaN or an infinity anywhere must not stay behind unseen
        steps = steps.float().masked_fill(~largest_size(x).isfinite(), torch.nan) + 0.0
        return OnGrid(steps, key.shared, dim, block, self.width, self.exponent, self.unbiased)

    def stretched(self, dim: int) -> float:
        """The largest norm of q·Δ with a `clip`: rounding exceeds it with a probability of 10⁻⁶ at most, and is then
        towards zero, which exceeds nothing (the bound of Kairouz, Liu, Steinke 2021, arXiv 2102.06387)."""
        spread = self.step * math.sqrt(self.count(dim))
        likely = self.clip**2 + spread**2 / 4 + math.sqrt(2 * math.log(1 / RARE)) * self.step * (self.clip + spread / 2)
        return min(self.clip + spread, math.sqrt(likely))

    def contraction(self, dim: int) -> float | None:
        """None: what is beyond the range is cut off, and small vectors are mostly rounding."""
        return None
