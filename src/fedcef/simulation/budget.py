"""A run with a budget of bytes: how much is compressed is chosen for every round, so that the bytes last to its end.

The choice is among a few *levels*: the configured ratios, up and down, times powers of √2.  What a round costs at a
level is what the last one there cost, moved along with what was measured since at other levels; where there was none,
what a rehearsal with random vectors costs, scaled as the nearest known level's rehearsal must be.  A round gets its
share of the bytes left, and takes the highest level that costs no more.

A round that would leave too little for the others is done again, one level lower, before it counts: everyone knows a
message's length before it is sent.  So only rounds at the lowest level can go beyond the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, Message, State
from fedcef.algorithms.fedcef import FedCEF
from fedcef.algorithms.received import Received
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.sparsifiers import Sparsifier
from fedcef.core.errors import ConfigError
from fedcef.core.rng import round_key
from fedcef.problems.problem import Problem
from fedcef.simulation.capture import put, take
from fedcef.wire import frame_nbytes

if TYPE_CHECKING:
    from fedcef.simulation.simulation import Simulation

STEPS = range(-8, 9)  # ratios from 1/16 of the configured ones to 16 times them
RESERVE = 1.1  # what is kept for each later round, in costs of the lowest level
STAY = 1.1  # a level is kept while it costs no more than this times its share: costs differ a little by round


@dataclass(frozen=True)
class Budget:
    """How many bytes a run may send, up and down and for all clients, in so many rounds.

    With `tilt` above 0 the first rounds get more than the last, from 1 + tilt of the mean down to 1 - tilt.
    """

    total: int
    rounds: int
    tilt: float = 0.0

    def share(self, round_: int, left: int) -> float:
        """What a round may cost, of the bytes left."""
        weights = [1 + self.tilt * (1 - (2 * t + 1) / self.rounds) for t in range(round_, self.rounds)]
        return left * weights[0] / sum(weights) if weights else left


@dataclass(frozen=True, eq=False)
class Level:
    algorithm: FedCEF
    up_ratio: float
    down_ratio: float | None  # None: the way down has no ratio of its own


class Spender:
    """Plays a simulation's rounds within a budget."""

    def __init__(self, budget: Budget, simulation: Simulation) -> None:
        self.budget = budget
        self.levels = ladder(simulation.algorithm, simulation.problem.dim)
        self.level = -1  # of the last round; there was none yet
        self._notes: list[str] = []
        vectors = _random_vectors(simulation.cohort_size, simulation.problem)
        self._rehearsed = [_rehearse(level.algorithm, vectors, simulation.problem) for level in self.levels]
        self._measured = [0] * len(self.levels)  # 0: not known
        self._warned = False

    def play(self, simulation: Simulation) -> Message:
        """The next round; what it costs is read back from the ledger."""
        spent = simulation.ledger.sent()
        before, level = self.level, self._choose(simulation.round, self.budget.total - spent)
        states = {name: tensor.clone() for name, tensor in take(simulation).items()}
        while True:
            simulation.algorithm = self.levels[level].algorithm
            down = simulation.play_next(level)
            cost = simulation.ledger.sent() - spent
            self._learn(level, cost)
            left = self.budget.total - spent - cost
            if level == 0 or left >= (self.budget.rounds - simulation.round - 1) * RESERVE * self._cost(0):
                break
            level -= 1
            put(simulation, states)
        self.level = level
        self._note(simulation.round, before, left)
        return down

    def ratios(self) -> dict[str, float | None]:
        """What the last round kept, for its record."""
        if self.level < 0:
            return {}
        return {"up_ratio": self.levels[self.level].up_ratio, "down_ratio": self.levels[self.level].down_ratio}

    def take_notes(self) -> tuple[str, ...]:
        """What is to be told of the last rounds, once."""
        notes, self._notes = tuple(self._notes), []
        return notes

    def state(self) -> State:
        """What the next choice depends on besides the ledger."""
        known = {"rehearsed": self._rehearsed, "measured": self._measured, "level": self.level, "warned": self._warned}
        return {name: torch.tensor(value, dtype=torch.int64) for name, value in known.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self._rehearsed, self._measured = state["rehearsed"].tolist(), state["measured"].tolist()
        self.level, self._warned = int(state["level"]), bool(state["warned"])

    def _choose(self, round_: int, left: int) -> int:
        share = self.budget.share(round_, left)
        fitting = [i for i in range(len(self.levels)) if self._cost(i) <= share * (STAY if i == self.level else 1.0)]
        return max(fitting, default=0)

    def _cost(self, level: int) -> float:
        """What a round is expected to cost at a level."""
        known = [i for i, cost in enumerate(self._measured) if cost]
        if not known:
            return float(self._rehearsed[level])
        near = min(known, key=lambda i: abs(i - level))
        return self._rehearsed[level] * self._measured[near] / self._rehearsed[near]

    def _learn(self, level: int, cost: int) -> None:
        """Costs drift as training goes on: what was measured at other levels moves along with this one's."""
        drift = cost / self._measured[level] if self._measured[level] else 1.0
        self._measured = [round(drift * known) for known in self._measured]
        self._measured[level] = cost

    def _note(self, round_: int, before: int, left: int) -> None:
        if before not in (-1, self.level):
            now = self.levels[self.level]
            down = f", down {now.down_ratio:.3g}" if now.down_ratio is not None else ""
            self._notes.append(f"Round {round_ + 1}: the ratio is now {now.up_ratio:.3g}{down}, to fit the budget.")
        if left < 0 and not self._warned:
            self._warned = True
            self._notes.append(
                f"Round {round_ + 1} went beyond the budget of {self.budget.total:,} bytes: the lowest level costs "
                f"{self._measured[0]:,} bytes a round; lower the ratios, or raise budget."
            )


def ladder(algorithm: Algorithm, dim: int) -> tuple[Level, ...]:
    """The levels of an algorithm from the lowest to the highest; no two keep the same numbers of entries."""
    check_levels(algorithm)
    assert isinstance(algorithm, FedCEF)
    levels = [_level(algorithm, 2 ** (step / 2)) for step in STEPS]
    kept = [_kept(level.algorithm, dim) for level in levels]
    return (levels[0], *(now for (_, now), (a, b) in zip(pairwise(levels), pairwise(kept), strict=True) if a != b))


def check_levels(algorithm: Algorithm) -> None:
    """Refuse what has no ratio to choose."""
    chosen = [algorithm.compressor] if isinstance(algorithm, FedCEF) else []
    if isinstance(algorithm, FedCEF) and algorithm.downlink == "lossy":
        chosen.append(algorithm.down_compressor)
    if not chosen or not all(isinstance(compressor, Sparsifier) for compressor in chosen):
        raise ConfigError(
            "A budget chooses how many entries fedcef sends; take algorithm.name=fedcef with compressors that have a "
            "ratio (topk, stc, randk, layerwise_topk, blockwise_topk, block_topk), or leave budget away."
        )


def _level(algorithm: FedCEF, factor: float) -> Level:
    def scaled(compressor: Compressor) -> Sparsifier:
        assert isinstance(compressor, Sparsifier)
        return replace(compressor, ratio=min(1.0, compressor.ratio * factor))

    up = scaled(algorithm.compressor)
    if algorithm.downlink != "lossy":
        return Level(replace(algorithm, compressor=up), up.ratio, None)
    down = scaled(algorithm.down_compressor)
    return Level(replace(algorithm, compressor=up, down_compressor=down), up.ratio, down.ratio)


def _kept(algorithm: FedCEF, dim: int) -> list[int]:
    compressors = [algorithm.compressor, algorithm.down_compressor]
    return [c.count(dim) for c in compressors if isinstance(c, Sparsifier)]


def _rehearse(algorithm: FedCEF, vectors: Tensor, problem: Problem) -> int:
    """The bytes of a round in which the clients of a cohort send these vectors."""
    size = len(vectors)
    key = round_key(0, 0, torch.arange(size, device=vectors.device))
    up = algorithm.compressor.compress(vectors, key)
    received = Received.of({"delta": up.rows()}, key.shared, share=size / problem.num_clients)
    down, _ = algorithm.server_step(algorithm.server_init(problem.z0), algorithm.replica_init(problem.z0), received)
    # of a cohort of S, each was away for N/S rounds in the mean and gets as many messages
    return int(frame_nbytes({"delta": up}).sum() + problem.num_clients * frame_nbytes(down))


def _random_vectors(count: int, problem: Problem) -> Tensor:
    """Heavy-tailed vectors, one for each client; their large entries meet by chance only, which costs the most."""
    random = torch.Generator().manual_seed(0)
    normal = torch.randn(2, count, problem.dim, generator=random)
    return (normal[0] * normal[1].exp()).to(problem.z0)
