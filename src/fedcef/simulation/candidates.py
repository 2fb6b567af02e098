"""What a round would keep and cost with other compressors, measured on the vectors that it really compresses.

The round to come is worked out once as it stands, and the vectors that reach its compressors are noted.  Then each
candidate compresses them: how much of their energy does it keep, and how long are its messages?  On the way up what
counts is the clients' mean, in which errors of single clients cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, Message
from fedcef.algorithms.received import Received
from fedcef.compressors.sparsifiers import largest
from fedcef.compressors.value_coders import ValueCoder
from fedcef.core.round import Round
from fedcef.simulation.engine import Engine
from fedcef.simulation.rehearsal import Noting
from fedcef.simulation.snapshots import whole
from fedcef.simulation.spending import VALUES, Way
from fedcef.simulation.state import RunState
from fedcef.wire import Payload, frame_nbytes

RATIOS = tuple(2.0**-j for j in range(13, -1, -1))
"""Those that are measured."""
BETWEEN = 8
"""How many ratios there are to choose from for each of them; δ and bytes in between follow power laws."""
ENOUGH = 0.9
"""Where a message has more of the energy than this, larger ones are not looked at."""


@dataclass(frozen=True)
class Candidate:
    """A compressor for one direction, and what it would do in the round that was looked at."""

    way: Way
    kept: float
    """δ = 1 - |C(x) - x|²/|x|², the share of the energy that arrives."""
    nbytes: float
    """What a round sends in this direction; where the way down is not chosen, all that it sends."""


class Tried(NamedTuple):
    """What a compressor made of the vectors of a round."""

    way: Way
    kept: float
    up: int
    """What the clients send in all."""
    down: int
    """The length of the message down."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A round that was worked out but not played: its messages, and what its compressors were given."""

    engine: Engine
    state: RunState
    round: Round
    up: Message
    down: Message
    noted: Mapping[str, Noting]
    """By the fields of the compressors."""
    reach: float = 1.0
    """The share of all clients that will get the message down, now or later."""
    _tried: dict[tuple[str, float], list[Tried]] = field(default_factory=dict)

    @classmethod
    def of(cls, engine: Engine, state: RunState, number: int, reach: float = 1.0) -> Trial:
        """The round of this number from this state."""
        chosen = ("compressor",) if engine.algorithm.stands_alone else engine.algorithm.compressors_used
        noted: dict[str, Any] = {n: Noting(getattr(engine.algorithm, n)) for n in chosen}
        noting = replace(engine, algorithm=replace(engine.algorithm, **noted))
        round_ = engine.rounds.at(number)
        up, _ = noting.work(state, round_)
        return cls(engine, state, round_, up, _answer(noting, state, round_, up), noted, reach)

    def reaching(self, share: float) -> Trial:
        """The same round, if so many clients will get the message down; nothing is compressed twice."""
        return replace(self, reach=share)

    def candidates(self, field: str, most: float = inf) -> list[Candidate]:
        """Those for one of the compressors that cost no more than `most`, or the cheapest alone."""
        measured = self._measured(field, most)
        found = [candidate for curve in measured.values() for candidate in interpolated(curve)]
        cheapest = min(candidate.nbytes for candidate in found)
        return [candidate for candidate in found if candidate.nbytes <= max(most, cheapest)]

    def _measured(self, field: str, most: float) -> dict[ValueCoder, list[Candidate]]:
        """By how values travel, from the lowest ratio to the first that costs more than `most` or keeps nearly all."""
        curves: dict[ValueCoder, list[Candidate]] = {values: [] for values in VALUES}
        vectors, last = self.noted[field].given, 0
        for ratio in RATIOS:
            count = Way(ratio, "native").compressor.count(vectors[0].shape[-1])
            if count == last:
                continue
            last, now = count, [self._candidate(field, tried) for tried in self._all_at(field, ratio, count)]
            for candidate in now:
                curves[candidate.way.values].append(candidate)
            if min(c.nbytes for c in now) > most or max(c.kept for c in now) > ENOUGH:
                break
        return curves

    def _all_at(self, field: str, ratio: float, count: int) -> list[Tried]:
        if (field, ratio) not in self._tried:
            picked = [largest(x, count) for x in self.noted[field].given]
            self._tried[field, ratio] = [self._try(field, Way(ratio, values), picked) for values in VALUES]
        return self._tried[field, ratio]

    def _try(self, field: str, way: Way, picked: Sequence[Tensor]) -> Tried:
        noted = self.noted[field]
        payloads = [way.compressor.at(indices, x) for indices, x in zip(picked, noted.given, strict=True)]
        energies = [_mean(x).square().sum() for x in noted.given]
        errors = [_mean(p.dense() - x).square().sum() for p, x in zip(payloads, noted.given, strict=True)]
        energy = float(sum(energies))
        kept = 1 - float(sum(errors)) / energy if energy > 0 else 0.0
        return Tried(way, kept, *self._lengths(field, noted.made, payloads))

    def _lengths(self, field: str, old: Sequence[Payload], new: Sequence[Payload]) -> tuple[int, int]:
        """Of all that goes up and of the message down, if the compressor makes these payloads instead."""
        contexts = self._algorithm.contexts(self.state.replica)
        instead = {id(payload): other for payload, other in zip(old, new, strict=True)}

        def remade(message: Message) -> Message:
            return {name: instead.get(id(payload), payload) for name, payload in message.items()}

        if field != "compressor":
            return 0, int(frame_nbytes(remade(self.down), contexts))
        up = remade(self.up)
        down = {} if len(self.noted) > 1 else _answer(self.engine, self.state, self.round, up)
        return int(frame_nbytes(up, contexts).sum()), int(frame_nbytes(down, contexts)) if down else 0

    def _candidate(self, field: str, tried: Tried) -> Candidate:
        """What it costs; a message down is for all clients in the end, and nobody gets more than all for a round."""
        rounds, entire = self.engine.rounds, int(frame_nbytes(whole(self.state.replica)))
        down = min(self.reach * rounds.num_clients * tried.down, rounds.cohort_size * entire)
        if self.engine.algorithm.stands_alone:
            down = rounds.asked_size * tried.down
        alone = field == "compressor" and len(self.noted) > 1
        nbytes = tried.up if alone else down if field != "compressor" else tried.up + down
        return Candidate(tried.way, tried.kept, nbytes)

    @property
    def _algorithm(self) -> Algorithm:
        return self.round.scheduled(self.engine.algorithm)


def interpolated(curve: Sequence[Candidate]) -> Iterator[Candidate]:
    """The candidates of a curve, by ascending ratio, and those between each two: powers of the ratio."""
    yield curve[0]
    for low, high in pairwise(curve):
        if low.kept <= 0 or high.kept <= 0:
            yield high
            continue
        for j in range(1, BETWEEN + 1):
            t = j / BETWEEN
            yield Candidate(
                Way(_between(low.way.ratio, high.way.ratio, t), high.way.values),
                _between(low.kept, high.kept, t),
                _between(low.nbytes, high.nbytes, t),
            )


def _between(low: float, high: float, t: float) -> float:
    return float(low ** (1 - t) * high**t)


def _answer(engine: Engine, state: RunState, round_: Round, up: Message) -> Message:
    """What the server sends for these messages."""
    received = Received.of(
        up,
        round_.server,
        share=round_.share,
        weights=None if engine.weights is None else engine.weights(round_.clients),
    )
    return round_.scheduled(engine.algorithm).server_step(state.server, state.replica, received)[0]


def _mean(x: Tensor) -> Tensor:
    """Over the clients, if there are several: (..., p) -> (p,)."""
    return x.reshape(-1, x.shape[-1]).mean(0)
