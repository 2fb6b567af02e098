"""How the server makes one vector of the clients' vectors: their mean, or a rule that bounds what a few can do to it.

    mean              (1/n) Σ v_i
    trimmed_mean      entry by entry: without the t largest and the t smallest, the mean of the others, t = ⌈trim·n⌉
    median            entry by entry
    norm_clipping     (1/n) Σ v_i · min(1, b/‖v_i‖), where b follows the usual norms of the rounds so far
    geometric_median  the point with the least sum of distances Σ ‖v - v_i‖, by Weiszfeld's iteration

Every rule sees the vectors as a table (n, p) and does not depend on the order of its rows, but for the last bits where
these are added up.  What it costs is in docs/robustness.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcef.core.ranges import Count, Fraction, Positive

_AT_ONCE = 2**20
"""Entries of a table that are sorted at once."""


class Aggregation(ABC):
    """A rule that makes one vector of many; it may remember something of the rounds before."""

    def is_mean(self, count: int) -> bool:
        """Whether the rule is the plain mean for so many vectors, whatever they are."""
        return False

    def start(self, like: Tensor) -> dict[str, Tensor]:
        """What is remembered before the first round, by name; in the type and on the device of `like`."""
        return {}

    @abstractmethod
    def combine(self, vectors: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """One vector (p,) for these, (n, p), and what is remembered from now on."""


@dataclass(frozen=True, kw_only=True)
class Mean(Aggregation):
    """The plain mean, or the one by `weighting`."""

    def is_mean(self, count: int) -> bool:
        return True

    def combine(self, vectors: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return _mean(vectors), memory


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(Aggregation):
    """In every entry, the mean of the values that are left when the largest and the smallest are taken away."""

    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    """The share of values taken away at each end; it should be no less than the share of clients that may lie."""

    def _off(self, count: int) -> int:
        """How many values go at each end: rounded up, as a smaller cohort may have as many liars; some must stay."""
        return min(math.ceil(self.trim * count - 1e-9), (count - 1) // 2)

    def is_mean(self, count: int) -> bool:
        return not self._off(count)

    def combine(self, vectors: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        off = self._off(len(vectors))
        if not off:
            return _mean(vectors), memory
        return _by_entry(vectors, lambda ascending: _mean(ascending[off:-off])), memory


@dataclass(frozen=True, kw_only=True)
class Median(Aggregation):
    """In every entry, the median; of an even number of values, the mean of the two in the middle."""

    def is_mean(self, count: int) -> bool:
        return count == 1

    def combine(self, vectors: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return _median(vectors), memory


@dataclass(frozen=True, kw_only=True)
class NormClipping(Aggregation):
    """The mean of vectors that are shortened to a bound, which follows the usual norms."""

    factor: Annotated[float, Field(gt=0)] = 1.0
    """The bound is so many times the usual norm; inf = none."""
    quantile: Fraction = 0.5
    """Which of a round's norms, in ascending order, is its usual one: 0.5 is the (lower) median."""
    memory: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """How much of the rounds before is remembered in the usual norm; 0 = each round has its own."""

    def is_mean(self, count: int) -> bool:
        return math.isinf(self.factor)

    def start(self, like: Tensor) -> dict[str, Tensor]:
        return {"usual": like.new_zeros(1)}

    def combine(self, vectors: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        norms = torch.linalg.vector_norm(vectors, dim=1)
        place = max(1, math.ceil(self.quantile * len(vectors) - 1e-9)) - 1
        now, before = norms.sort().values[place], memory["usual"]
        usual = torch.where(before > 0, self.memory * before + (1 - self.memory) * now, now)
        bound = self.factor * usual
        shorter = torch.where(norms > bound, bound / norms, torch.ones_like(norms))
        return _mean(shorter.unsqueeze(-1) * vectors), {"usual": usual}


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Aggregation):
    """The point with the least sum of distances to all vectors."""

    iterations: Count = 16
    """How many steps are taken towards it, from the median."""
    floor: Positive = 1e-6
    """Distances count as at least so many times the median one, which keeps their reciprocals moderate."""

    def is_mean(self, count: int) -> bool:
        return count == 1

    def combine(self, vectors: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        point = _median(vectors)
        for _ in range(self.iterations):
            distances = torch.linalg.vector_norm(vectors - point, dim=1)
            near = distances.sort().values[(len(vectors) - 1) // 2]  # a scale that a few cannot move
            least = (self.floor * near).clamp(min=torch.finfo(vectors.dtype).tiny)
            weights = least / distances.maximum(least)
            point = _sum(weights.unsqueeze(-1) * vectors) / weights.sum()
        return point, memory


AGGREGATIONS: dict[str, type[Aggregation]] = {
    "mean": Mean,
    "trimmed_mean": TrimmedMean,
    "median": Median,
    "norm_clipping": NormClipping,
    "geometric_median": GeometricMedian,
}


def _sum(vectors: Iterable[Tensor]) -> Tensor:
    """Added up one after the other, as the mean of messages is."""
    each = iter(vectors)
    total = next(each) + 0.0
    for vector in each:
        total += vector
    return total


def _mean(vectors: Tensor) -> Tensor:
    """The mean with the bits that the mean of messages has: the divisor is a tensor on the device."""
    return _sum(vectors) / torch.full((), len(vectors), dtype=vectors.dtype, device=vectors.device)


def _median(vectors: Tensor) -> Tensor:
    lower, upper = (len(vectors) - 1) // 2, len(vectors) // 2
    return _by_entry(vectors, lambda ascending: 0.5 * ascending[lower] + 0.5 * ascending[upper])


def _by_entry(vectors: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """of(every column in ascending order), (n, some) -> (some,), for some of the columns at a time."""
    columns = torch.split(vectors, max(1, _AT_ONCE // len(vectors)), dim=1)
    return torch.cat([of(some.sort(dim=0).values) for some in columns])
