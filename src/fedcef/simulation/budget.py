"""A run with a budget of bytes: how much is compressed is chosen for every round, so that the bytes last to its end.

The choice is among a few *levels*: the configured ratios of a method's compressors times powers of √2.  What a round
costs at a level is what the last one there cost, moved along with what was measured since at other levels; where there
was none, what a rehearsal with random vectors costs, scaled as the nearest known level's rehearsal must be.  A round
gets its share of the bytes left, and takes the highest level that costs no more.

A round that would leave too little for the others is done again, one level lower, before it counts: everyone knows a
message's length before it is sent.  So only rounds at the lowest level can go beyond the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, Message
from fedcef.compressors import Compressor
from fedcef.compressors.sparsifiers import Sparsifier
from fedcef.core.errors import ConfigError
from fedcef.core.round import rehearsal_key
from fedcef.simulation.engine import Play
from fedcef.simulation.rehearsal import rehearsed_bytes
from fedcef.simulation.snapshots import whole
from fedcef.simulation.spending import Spending
from fedcef.simulation.state import RunState
from fedcef.wire import frame_nbytes

STEPS = range(-8, 9)  # ratios from 1/16 of the configured ones to 16 times them
RESERVE = 1.1  # what is kept for each later round, in costs of the lowest level
STAY = 1.1  # a level is kept while it costs no more than this times its share: costs differ a little by round


@dataclass(frozen=True)
class Budget:
    """How many bytes a run may send, up and down and for all clients, in so many rounds.

    With `tilt` above 0 the first rounds get more than the last, from 1 + tilt of the mean down to 1 - tilt.  With
    `away` a round is charged with what clients who are away will get of it; there are fewer of these towards the end.
    """

    total: int
    rounds: int
    tilt: float = 0.0
    away: float = 0.0
    """The share of clients that a round does without, if they count."""

    def share(self, round_: int, left: int) -> float:
        """What a round may cost, of the bytes left."""
        weights = [
            (1 + self.tilt * (1 - (2 * t + 1) / self.rounds)) * self.reach(t) for t in range(round_, self.rounds)
        ]
        return left * weights[0] / sum(weights) if weights else left

    def reach(self, round_: int) -> float:
        """The share of clients that take part again after this round, as cohorts are drawn at random."""
        return 1 - self.away ** (self.rounds - round_) if self.away else 1.0

    def charged(self, state: RunState, played: int) -> int:
        """The bytes so far and, if they count, those that clients who are away will get when they take part again.

        Without these the first rounds of a run with few clients would seem to cost next to nothing.  To their mean
        comes twice their standard deviation, so that the cohorts drawn do not decide whether the budget is kept.
        """
        sent, column = state.ledger.sent(), state.ledger.wire
        if not self.away:
            return sent
        missed, spread = column.marks.missed(column.log, most=int(frame_nbytes(whole(state.replica))))
        reach = self.reach(played)
        return sent + round(float(reach * missed + 2 * (reach * (1 - reach)) ** 0.5 * spread))


@dataclass(frozen=True, eq=False)
class Level:
    """A method with ratios to choose, and what to call them in a record."""

    algorithm: Algorithm
    up_ratio: float
    down_ratio: float | None
    """None: the way down has no ratio of its own."""


@dataclass(frozen=True, eq=False)
class Spender:
    """Plays rounds within a budget: `play` has the signature of the engine's, and calls one of the levels' own."""

    budget: Budget
    levels: Sequence[Level]
    plays: Sequence[Play]
    """How a round is done at each level."""
    overwrites: bool = False
    """Whether that overwrites the state that it is given, as recorded rounds do."""

    def play(self, state: RunState, number: int) -> tuple[RunState, Message]:
        """The next round; what it costs is read back from the ledger."""
        assert state.spending is not None, "a run with a budget knows what it has spent"
        spent, spending = self.budget.charged(state, number), state.spending
        level = self._choose(spending, number, self.budget.total - spent)
        kept = state.clone() if self.overwrites else state
        while True:
            after, down = self.plays[level](state, number)
            cost = self.budget.charged(after, number + 1) - spent
            spending = spending.learn(level, cost)
            left = self.budget.total - spent - cost
            if level == 0 or left >= (self.budget.rounds - number - 1) * RESERVE * spending.cost(0):
                break
            level, state = level - 1, kept
        return replace(after, spending=self._told(spending, level, number, left)), down

    def ratios(self, spending: Spending) -> dict[str, float | None]:
        """What the last round kept, for its record."""
        if spending.level < 0:
            return {}
        level = self.levels[spending.level]
        return {"up_ratio": level.up_ratio, "down_ratio": level.down_ratio}

    def _choose(self, spending: Spending, round_: int, left: int) -> int:
        share, stay = self.budget.share(round_, left), spending.level
        costs = [spending.cost(i) for i in range(len(self.levels))]
        fitting = [i for i, cost in enumerate(costs) if cost <= share * (STAY if i == stay else 1.0)]
        return max(fitting, default=0)

    def _told(self, spending: Spending, level: int, round_: int, left: int) -> Spending:
        """The level of the round that was done, and what is to be said of it."""
        notes = []
        if spending.level not in (-1, level):
            now = self.levels[level]
            down = f", down {now.down_ratio:.3g}" if now.down_ratio is not None else ""
            notes.append(f"Round {round_ + 1}: the ratio is now {now.up_ratio:.3g}{down}, to fit the budget.")
        if left < 0 and not spending.warned:
            notes.append(
                f"Round {round_ + 1} went beyond the budget of {self.budget.total:,} bytes: the lowest level costs "
                f"{spending.measured[0]:,} bytes a round; lower the ratios, or raise budget."
            )
        return replace(spending, level=level, warned=spending.warned or left < 0, notes=tuple(notes))


def ladder(algorithm: Algorithm, dim: int, per_octave: int = 2) -> tuple[Level, ...]:
    """The levels of an algorithm from the lowest to the highest; no two keep the same numbers of entries."""
    check_levels(algorithm)
    levels = [_level(algorithm, 2 ** (step / per_octave)) for step in STEPS]
    kept = [[compressor.count(dim) for compressor in _chosen(level.algorithm).values()] for level in levels]
    return (levels[0], *(now for (_, now), (a, b) in zip(pairwise(levels), pairwise(kept), strict=True) if a != b))


def check_levels(algorithm: Algorithm) -> None:
    """Refuse what has no ratio to choose."""
    used = [getattr(algorithm, name) for name in algorithm.compressors_used]
    if not used or not all(isinstance(compressor, Sparsifier) for compressor in used):
        raise ConfigError(
            "A budget chooses how many entries are sent; take a method that compresses, such as fedcef, with "
            "compressors that have a ratio (topk, stc, randk, layerwise_topk, blockwise_topk, block_topk), or leave "
            "budget out."
        )


def rehearse(levels: Sequence[Level], cohort_size: int, num_clients: int, z0: Tensor) -> list[int]:
    """About how many bytes a round costs at each level."""
    vectors = _random_vectors(cohort_size, z0)
    key = rehearsal_key(torch.arange(cohort_size, device=z0.device))
    return [rehearsed_bytes(level.algorithm, vectors, key, num_clients, z0) for level in levels]


def _chosen(algorithm: Algorithm) -> dict[str, Sparsifier]:
    """The compressors whose ratio is chosen, by their field."""
    used = {name: getattr(algorithm, name) for name in algorithm.compressors_used}
    return {name: compressor for name, compressor in used.items() if isinstance(compressor, Sparsifier)}


def _level(algorithm: Algorithm, factor: float) -> Level:
    def scaled(compressor: Sparsifier) -> Sparsifier:
        return replace(compressor, ratio=min(1.0, compressor.ratio * factor))

    chosen: dict[str, Compressor] = {name: scaled(compressor) for name, compressor in _chosen(algorithm).items()}
    ratios = {name: compressor.ratio for name, compressor in chosen.items() if isinstance(compressor, Sparsifier)}
    return Level(replace(algorithm, **chosen), ratios["compressor"], ratios.get("down_compressor"))  # type: ignore[arg-type]


def _random_vectors(count: int, z0: Tensor) -> Tensor:
    """Heavy-tailed vectors, one for each client; their large entries meet by chance only, which costs the most."""
    random = torch.Generator().manual_seed(0)
    normal = torch.randn(2, count, len(z0), generator=random)
    return (normal[0] * normal[1].exp()).to(z0)
