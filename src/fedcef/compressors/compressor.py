"""The interface of a compressor C."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from fedcef.core.layout import Layout
from fedcef.core.rng import Key
from fedcef.wire import Dense, Payload


class Compressor(ABC):
    """From a vector to what is sent for it (docs/compressors.md).

    What was not finite is not sent as if it were: the payload of a vector with a NaN or an infinity in it cannot be
    encoded.  Zero goes to zero.
    """

    @abstractmethod
    def compress(self, x: Tensor, key: Key) -> Payload:
        """What is sent for x, (..., p); its decoded value is C(x)."""

    @abstractmethod
    def contraction(self, dim: int) -> float | None:
        """q² of E|C(x) - x|² <= q²|x|² for every x of this length; None if there is none below 1."""

    def variance(self, dim: int) -> float | None:
        """ω of E|C(x) - x|² <= ω|x|² for every x of this length if E C(x) = x; None if C is biased."""
        return None

    def fit(self, layout: Layout) -> Compressor:
        """The compressor for vectors of this layout; most do not care."""
        return self


@dataclass(frozen=True, eq=False)
class Identity(Compressor):
    """C(x) = x: nothing is compressed."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """x itself."""
        return Dense(x)

    def contraction(self, dim: int) -> float:
        """0."""
        return 0.0

    def variance(self, dim: int) -> float:
        """0."""
        return 0.0
