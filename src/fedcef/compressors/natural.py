"""Natural compression: powers of two.

Horváth, Ho, Horváth, Sahu, Canini, Richtárik (2019, arXiv 1905.10988).  Let |x_j| = m·2^e with 1 <= m < 2.  Unbiased:
2^(e+1) with probability m - 1, else 2^e; ω = 1/8.  Nearest: 2^(e+1) if m >= 3/2; off by a third at most, q² = 1/9.

Both are the top bits of a float32 multiple of x: 4m/3 >= 2 just where m >= 3/2, and 2m/(1+U) >= 2 just where U <= m -
1, for U uniform in [0, 1).  Beyond the range of normal float32 numbers there are no powers: below 2^-126 is sent as 0,
and what rounds to 2^128 is refused by the encoder.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.compressors.compressor import Compressor
from fedcef.core.rng import Key, uniform
from fedcef.wire import Dense, Payload, Powers


@dataclass(frozen=True, eq=False, kw_only=True)
class Natural(Compressor):
    """Powers of two: the nearest one, or one of the two next to it at random (natural compression)."""

    unbiased: bool = False
    """Whether to round at random, so that E C(x) = x; otherwise to the nearest."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """A power of two for each entry."""
        return Dense(random_powers(x, key.own) if self.unbiased else nearest_powers(x))

    def contraction(self, dim: int) -> float:
        """1/9 to nearest, 1/8 at random."""
        return 1 / 8 if self.unbiased else 1 / 9

    def variance(self, dim: int) -> float | None:
        """1/8 if it rounds at random."""
        return 1 / 8 if self.unbiased else None


def nearest_powers(x: Tensor) -> Powers:
    """The power of two nearest to each entry of x, (..., k)."""
    return Powers.of((x * (4 / 3)).to(torch.float32))


def random_powers(x: Tensor, key: Tensor) -> Powers:
    """One of the two powers of two beside each entry of x, (..., k), drawn so that its mean is the entry."""
    return Powers.of((x * (2 / (1 + uniform(key, x.shape[-1])))).to(torch.float32))
