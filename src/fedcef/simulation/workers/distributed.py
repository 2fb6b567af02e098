"""The cohort split over processes, by `torch.distributed`.

Every process has the same replica and the same ledger, and knows by (seed, t) who takes part in a round.  It does the
work of its own stretch of the cohort; then all messages go to all processes, so that each holds the same stack in the
order of the clients, and goes on as if it were alone.  So nothing has to be told them afterwards.

Of messages with all their entries only the sum is needed, mostly; it goes from process to process instead
(`Team.sum_in_order`).  Where clients have states of their own a process has those of certain clients and works for
them (`scattered.py`).  Otherwise it takes its share of the cohort by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.core.errors import RunError
from fedcef.core.round import Round
from fedcef.simulation.client_states import ClientStates, States
from fedcef.simulation.state import RunState
from fedcef.simulation.workers.chunked import Chunked, part_of
from fedcef.simulation.workers.scattered import Scattered, ScatteredStates, block
from fedcef.simulation.workers.stacks import Added, is_plain, joined
from fedcef.simulation.workers.team import Team
from fedcef.simulation.workers.whole import Whole
from fedcef.simulation.workers.workers import Proposed, PutAway, Settle, Workers, all_finite, commit, only
from fedcef.wire import Payload

if TYPE_CHECKING:
    from fedcef.simulation.engine import Engine


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Vectors(NamedTuple):
    """Stands for vectors with all their entries, which stay where they are."""

    dim: int
    dtype: torch.dtype
    each: Tensor
    """The bytes of each, (n,)."""
    each_on_paper: Tensor


class _Done(NamedTuple):
    """What a process tells the others of its part of a round."""

    up: dict[str, Payload | _Vectors]
    clients: int
    """Of the cohort, how many it worked for."""
    finite: bool
    replica: int
    """A checksum of what it started from."""


@dataclass(frozen=True)
class Distributed(Workers):
    """Works for this process's part of the cohort, and gets the other parts from the others."""

    team: Team
    chunk: int = 0
    """How many clients are in memory at a time; 0 = all of the part."""

    def work(self, engine: Engine, state: RunState, round_: Round) -> tuple[Message, Proposed]:
        self.team.move_to(state.finite.device)
        places = self._places(state.clients, round_.clients)
        part = part_of(round_, places)
        up, proposed = self._own(engine, state, part)
        finite = all_finite(proposed) if isinstance(proposed, dict) else proposed.commit(None)[1]
        adds = {name for name, payload in up.items() if engine.wants_means and is_plain(payload)}
        told = {name: _vectors(payload) if name in adds else payload for name, payload in up.items()}
        mine = _Done(told, len(part.clients), bool(finite), _checksum(state.replica))
        done = self.team.exchange(mine, interruptible=True)
        self._compare(done, round_)
        together = torch.tensor(all(one.finite for one in done))
        return self._message(up, done), _Mine(state.clients, part.clients, proposed, together, self.team, places.start)

    def first_message(self, engine: Engine, state: RunState, round_: Round) -> Message:
        self.team.move_to(state.finite.device)
        places = self._places(state.clients, round_.clients)
        up: Message = {}
        if places.start == 0 and places.stop > 0:
            first = Chunked(self.chunk) if self.chunk else Whole()
            up = first.first_message(engine, state, part_of(round_, places))
        return next(message for message in self.team.exchange(up) if message)

    def states(self, states: States) -> States:
        return ScatteredStates(self.team, states)

    def _places(self, clients: ClientStates, cohort: Tensor) -> slice:
        """Which of the cohort are this process's."""
        if not isinstance(clients, Scattered) or not clients.first:
            mine = block(self.team.rank, self.team.size, len(cohort))
            return slice(mine.start, mine.stop)
        edges = torch.tensor([clients.block.start, clients.block.stop], device=cohort.device)
        return slice(*torch.searchsorted(cohort, edges).tolist())

    def _own(self, engine: Engine, state: RunState, part: Round) -> tuple[Message, Proposed]:
        if not len(part.clients):
            return {}, {}
        workers = Chunked(self.chunk, keeps_all=True) if self.chunk else Whole()
        return workers.work(engine, state, part)

    def _message(self, up: Message, done: Sequence[_Done]) -> Message:
        """The messages of all, in their order."""
        having = [one for one in done if one.clients]
        return {name: self._joined(name, up, done, having) for name in having[0].up}

    def _joined(self, name: str, up: Message, done: Sequence[_Done], having: Sequence[_Done]) -> Payload:
        parts = [one.up[name] for one in having]
        stacks = [part for part in parts if isinstance(part, Payload)]
        if len(stacks) == len(parts):
            return joined(stacks)
        vectors = [part for part in parts if isinstance(part, _Vectors)]
        rows = up[name].dense() if name in up else ()
        total = self.team.sum_in_order(rows, [one.clients for one in done], vectors[0].dim, vectors[0].dtype)
        return Added(total, torch.cat([v.each for v in vectors]), torch.cat([v.each_on_paper for v in vectors]))

    def _compare(self, done: Sequence[_Done], round_: Round) -> None:
        other = next((rank for rank, one in enumerate(done) if one.replica != done[0].replica), 0)
        if other:
            raise RunError(
                f"Before round {int(round_.number)} processes 0 and {other} hold different models; they must run on "
                "machines and versions of the same kind, with the same number of torch threads."
            )


@dataclass(frozen=True, eq=False)
class _Mine(PutAway):
    """Proposed states of this process's clients; the others keep their own."""

    before: ClientStates
    clients: Tensor
    proposed: Proposed
    finite: Tensor
    """Whether those of all processes are."""
    team: Team
    start: int
    """The place of the first of these clients in the cohort."""
    asks: bool = False
    """Whether the others must be asked if theirs are finite."""

    def only(self, rows: Tensor) -> _Mine:
        assert isinstance(self.proposed, dict), "where clients may come too late, states are put away later"
        mine = rows[(rows >= self.start) & (rows < self.start + len(self.clients))] - self.start
        some = self.clients[mine.to(self.clients.device)]
        return replace(self, clients=some, proposed=only(self.proposed, mine), finite=torch.tensor(True), asks=True)

    def commit(self, settle: Settle | None) -> tuple[ClientStates, Tensor]:
        states, finite = self.before, self.finite
        if len(self.clients):
            states, mine = commit(self.before, self.clients, self.proposed, settle)
            finite = finite & mine
        if settle is not None or self.asks:  # what became of them then is known here alone
            finite = torch.tensor(all(self.team.exchange(bool(finite))))
        return states, finite


def _vectors(payload: Payload) -> _Vectors:
    return _Vectors(payload.dim, payload.dense().dtype, payload.nbytes(), payload.paper_nbytes())


def _checksum(state: State) -> int:
    """Tells states apart that differ in a bit."""
    total = 0
    for vector in state.values():
        words = vector.contiguous().view(-1).view(_WORDS[vector.dtype.itemsize])
        places = torch.arange(1, len(words) + 1, device=words.device)
        total = (31 * total + int((words * places).sum())) % 2**62
    return total
