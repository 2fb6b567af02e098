"""Clients' states that are kept by several processes, each those of its own clients.

The clients are dealt out in blocks: the first process has the first ones, and so on.  A cohort is in ascending order,
so each process has a stretch of it, and all messages are in the order of the clients if those of one process follow
those of the one before.  A client is worked on where its state is, which therefore never travels: between processes go
messages, which are compressed, and N·p numbers need the memory of all W processes together.

The price is balance.  Of a cohort of S random clients a process has S/W in the mean, with a standard deviation below
√(S/W), and a round takes as long as the busiest needs; with all clients in every round each has the same number but for
one.  Rows that follow the work would be balanced, but some 2·S·p numbers would travel in a round for each vector of
the state, and whoever keeps them would need all the memory.

A snapshot is one process's: the first one has a file in the run's folder as a run alone would have (`row_log.py`), and
gets from all of them the rows that have changed since the last snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.simulation.client_states import ClientStates, States
from fedcef.simulation.stores import Store, Touched
from fedcef.simulation.stores.filed import Filed
from fedcef.simulation.workers.team import Team

_AT_ONCE = 1 << 24  # numbers of a block of rows that is sent at once


def block(rank: int, size: int, num_clients: int) -> range:
    """The clients of one of so many processes."""
    return range(rank * num_clients // size, (rank + 1) * num_clients // size)


@dataclass(frozen=True)
class ScatteredStates:
    """Makes the states of a run in several processes: has the `start` of a `ClientStates`."""

    team: Team
    states: States
    """What makes the states of a run in one."""

    def start(self, state: State, num_clients: int) -> ClientStates:
        """The states before the first round: every client has this one."""
        mine = block(self.team.rank, self.team.size, num_clients)
        kept = self._file(state, num_clients)
        return Scattered(self.part(state, len(mine), num_clients), self, mine, num_clients, state, kept)

    def part(self, state: State, count: int, num_clients: int) -> ClientStates:
        """Those of some of all clients, by one process for itself: it has no files in the run's folder."""
        if not isinstance(self.states, Store):
            return self.states.start(state, count)
        name = self.states.options.name
        if name == "auto":  # as for all clients: parts may differ by one
            name = "table" if self.states.is_table(state, num_clients) else "memory"
        options = self.states.options.model_copy(update={"name": name})
        part = replace(self.states, folder=None, options=options).start(state, count)
        return part.noted() if isinstance(part, Touched) else part

    def _file(self, state: State, num_clients: int) -> Filed | None:
        """Where the first process keeps the rows of all, if a run in one would have them in a file."""
        store = self.states
        if not (self.team.is_first and state and isinstance(store, Store) and store.folder):
            return None
        return None if store.is_table(state, num_clients) else store.file(state, num_clients)


@dataclass(frozen=True, eq=False)
class Scattered(ClientStates):
    """The states of this process's clients, by their numbers among all; what asks for more must be asked by all."""

    mine: ClientStates
    kind: ScatteredStates
    block: range
    num_clients: int
    first: State
    """What every client begins with."""
    file: Filed | None = None
    """All clients' rows as of the last snapshot, in the first process of a run that has a folder."""

    @classmethod
    def start(cls, state: State, num_clients: int) -> ClientStates:
        raise NotImplementedError("States of several processes are made by ScatteredStates, which knows these.")

    def take(self, clients: Tensor) -> State:
        if not self.first:  # such methods' clients are dealt out by position, to any process
            return {}
        return self.mine.take(clients - self.block.start)

    def put(self, clients: Tensor, rows: State) -> Scattered:
        if not self.first:
            return self
        return replace(self, mine=self.mine.put(clients - self.block.start, rows))

    def mean(self) -> State:
        """Over all clients, to the last bit as one process takes it; so each has to have their states for a moment."""
        if not self.first:
            return {}
        clients, rows = self._gathered(keep=True)
        everyone = Touched.start(self.first, self.num_clients)
        return (everyone.put(clients, rows) if rows else everyone).mean()

    def tensors(self) -> State:
        """All clients' states in the first process, as it could keep them alone; nothing in the others."""
        in_a_file: bool = self.kind.team.from_first(lambda: self.file is not None)
        if in_a_file:
            return self._kept()
        clients, rows = self._gathered(keep=self.kind.team.is_first)
        return rows if not isinstance(self.mine, Touched) or not rows else {"client": clients, **rows}

    def with_tensors(self, tensors: State) -> Scattered:
        """The states that the first process has these tensors of."""
        if not self.first:
            return self
        mine, team = self.kind.part(self.first, len(self.block), self.num_clients), self.kind.team
        file = None if self.file is None else self.file.emptied()
        whole = self._read(tensors, file) if team.is_first else None
        clients = team.from_first(lambda: whole.touched() if whole else torch.empty(0))
        for some in torch.split(clients, self._at_once):
            rows = team.from_first(lambda some=some: whole.take(some) if whole else {})  # type: ignore[misc]
            own = (some >= self.block.start) & (some < self.block.stop)
            places = (some[own] - self.block.start).to(next(iter(rows.values())).device)
            mine = mine.put(places, {name: table[own.to(table.device)] for name, table in rows.items()})
        if team.from_first(lambda: "log" in tensors) and isinstance(mine, Touched):
            mine.kept()
        return replace(self, mine=mine, file=file)

    def _kept(self) -> State:
        """The mark by which the first process finds all rows again, once those that changed are in its file."""
        mine, file = self.mine, self.file
        assert isinstance(mine, Touched), "only such states are kept in a file"
        for pieces in self._sent(mine.changed()):
            for clients, rows in pieces:
                if file is not None:
                    file.write(clients, rows)
        mark = {} if file is None else {"log": file.keep()}
        mine.kept()  # last: what an interrupt leaves out is kept the next time
        return mark

    def _read(self, tensors: State, file: Filed | None) -> Touched:
        """All clients' states; those that are in a file are read from there."""
        if "log" in tensors and file is not None:
            file.go_back(tensors["log"])
            return Touched(file)
        states = self.kind.states if "log" in tensors else Touched
        whole = states.start(self.first, self.num_clients).with_tensors(tensors)
        assert isinstance(whole, Touched), "only such a store has a log"
        return whole

    def _gathered(self, keep: bool) -> tuple[Tensor, State]:
        """The clients that have a state of their own, in ascending order, and their rows; nothing if not to `keep`."""
        mine = self.mine
        places = mine.touched() if isinstance(mine, Touched) else torch.arange(len(self.block))
        by_rank: list[list[tuple[Tensor, State]]] = [[] for _ in range(self.kind.team.size)]
        for pieces in self._sent(places):
            for so_far, piece in zip(by_rank, pieces, strict=True):
                so_far += [piece] if keep else []
        flat = [piece for pieces in by_rank for piece in pieces]
        if not flat:
            return places[:0], {}
        return torch.cat([numbers for numbers, _ in flat]), {
            name: torch.cat([rows[name] for _, rows in flat]) for name in self.first
        }

    def _sent(self, places: Tensor) -> Iterator[list[tuple[Tensor, State]]]:
        """The rows in these places of each process and whose they are, some at a time, for all processes."""
        team, clients, each = self.kind.team, places + self.block.start, self._at_once
        for start in range(0, max(team.exchange(len(clients))), each):
            some = clients[start : start + each]
            yield team.exchange((some, self.take(some)))

    @property
    def _at_once(self) -> int:
        """How many clients' rows are sent at a time."""
        return max(1, _AT_ONCE // max(1, sum(vector.numel() for vector in self.first.values())))
