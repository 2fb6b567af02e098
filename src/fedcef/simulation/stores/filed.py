"""Rows on a disk, and rows in memory that a disk can bring back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.core.amounts import format_bytes
from fedcef.core.errors import RunError
from fedcef.core.interrupts import uninterrupted
from fedcef.simulation.stores.coded import encoded, stacked
from fedcef.simulation.stores.noted import Noted
from fedcef.simulation.stores.row_codes import RowCode
from fedcef.simulation.stores.row_log import RECORD, Place, RowLog
from fedcef.simulation.stores.rows import Rows, numbers

_SLACK = 64 << 20  # bytes that may be out of date before a file is written anew, whatever the rest is
_AT_ONCE = 64  # rows that are in memory while a file is written anew


class Index:
    """Where every client's row lies in a file, and how many bytes the rows take together."""

    def __init__(self, num_clients: int) -> None:
        self.start = np.zeros(num_clients, np.int64)
        self.size = np.zeros(num_clients, np.int32)
        self.live = 0

    def place(self, client: int) -> Place:
        """Where a client's row lies; of no size if it has none."""
        return Place(int(self.start[client]), int(self.size[client]))

    def point(self, client: int, place: Place) -> None:
        """A client's row lies here from now on."""
        if not 0 <= client < len(self.start):
            raise ValueError("clients/log is of another problem")
        self.live += place.size - int(self.size[client])
        self.start[client], self.size[client] = place

    def clients(self) -> Tensor:
        """Those that have a row."""
        return torch.from_numpy(np.flatnonzero(self.size))

    def is_out_of_date(self, log: RowLog) -> bool:
        """Whether most of a file is rows that nobody has any more."""
        return log.length > 2 * self.live + _SLACK


class Filed(Rows):
    """Rows on a disk: twelve bytes in memory for each client, and what a round reads.

    Args:
        first: the row that every client begins with; rows are read on its device.
        num_clients: how many clients there are.
        log: the file.
        code: how a row is written.
        limit: how many bytes the rows may take; 0 = any.  Files may take twice that, and 64 MiB.
    """

    def __init__(self, first: State, num_clients: int, log: RowLog, code: RowCode, limit: int = 0) -> None:
        self.first, self.num_clients, self.code = first, num_clients, code
        self._limit = limit
        self._like = {name: vector.cpu() for name, vector in first.items()}
        self._at = (log, Index(num_clients))  # together: an interrupt finds a file and what is known of it

    def read(self, clients: Tensor) -> State:
        """The clients' rows, read from the file."""
        log, index = self._at
        rows = [self._decoded(log, client, index.place(client)) for client in numbers(clients).tolist()]
        return stacked(rows, self.first)

    def write(self, clients: Tensor, rows: State) -> None:
        """The clients' rows, added to the file; an error, and nothing done, where they take more than they may."""
        if not self.first:
            return
        log, index = self._at
        coded = encoded(clients, rows, self.code)
        self._check(index.live + sum(RECORD.overhead + len(row) - index.place(client).size for client, row in coded))
        for (client, _), place in zip(coded, log.add(coded), strict=True):
            index.point(client, place)
        if index.is_out_of_date(log):
            self._write_anew()

    def remembered(self, clients: Tensor, known: State | None) -> tuple[int, list[Place]]:
        """Where the rows lie: nothing in the file is overwritten."""
        log, index = self._at
        return log.number, [index.place(client) for client in numbers(clients).tolist()]

    def bring_back(self, clients: Tensor, remembered: tuple[int, list[Place]]) -> None:
        """Look again where the rows lay; those that lie in the file before this one are written once more."""
        (log, index), (number, places) = self._at, remembered
        pairs = list(zip(numbers(clients).tolist(), places, strict=True))
        if number == log.number:
            for client, place in pairs:
                index.point(client, place)
        else:
            old = log.numbered(number)
            self.write(clients, stacked([self._decoded(old, client, place) for client, place in pairs], self.first))

    def touched(self) -> Tensor:
        """The clients that have a row in the file."""
        return self._at[1].clients()

    def keep(self) -> Tensor:
        """The file's number and length, once it is durable."""
        return torch.tensor(self._at[0].keep())

    def go_back(self, mark: Tensor) -> None:
        """Cut the file off where it ended then, and find everyone's last row."""
        log, index = self._at
        for client, place in log.go_back(*mark.tolist()):
            index.point(client, place)

    def emptied(self) -> Filed:
        """The same file, of which nothing is known."""
        return Filed(self.first, self.num_clients, self._at[0], self.code, self._limit)

    def _decoded(self, log: RowLog, client: int, place: Place) -> State:
        return self.code.decode(log.read(place, client), self._like) if place.size else self._like

    def _check(self, wanted: int) -> None:
        if self._limit and wanted > self._limit:
            raise RunError(
                f"The states of {len(self.touched())} clients and this round's take {format_bytes(wanted)}, more than "
                f"store.limit = {format_bytes(self._limit)}; raise it, or take a shorter store.code."
            )

    def _write_anew(self) -> None:
        """Go on in the next file, with the rows that are good; until all of them are in it nothing changes."""
        log, index = self._at
        following, fresh = log.following(), Index(self.num_clients)
        for some in torch.split(index.clients(), _AT_ONCE):
            rows = [(client, log.read(index.place(client), client)) for client in some.tolist()]
            for (client, _), place in zip(rows, following.add(rows), strict=True):
                fresh.point(client, place)
        with uninterrupted():
            self._at = (following, fresh)
            following.tidy()


class Journalled(Noted):
    """Rows in memory, of which a file keeps those that changed since it was last asked to."""

    def __init__(self, rows: Rows, log: RowLog) -> None:
        super().__init__(rows)
        self._at = (log, Index(rows.num_clients))

    def keep(self) -> Tensor:
        """The file's number and length, once the rows that changed are in it."""
        log, index = self._at
        if self.first and self._changed:
            if index.is_out_of_date(log):
                following, fresh = log.following(), Index(self.num_clients)
                self._add(self.touched(), following, fresh)
                self._at = (following, fresh)
                following.tidy()
            else:
                self._add(self.changed(), log, index)
        self.kept()
        return torch.tensor(self._at[0].keep())

    def emptied(self) -> Journalled:
        """Nothing in memory; the same file."""
        return Journalled(self._rows.emptied(), self._at[0])

    def go_back(self, mark: Tensor) -> None:
        """Cut the file off where it ended then, and read everyone's last row."""
        log, index = self._at
        like = {name: vector.cpu() for name, vector in self.first.items()}
        for client, place in log.go_back(*mark.tolist()):
            index.point(client, place)
        for client in index.clients().tolist():
            row = self.code.decode(log.read(index.place(client), client), like)
            self._rows.write(torch.tensor([client]), {name: vector.unsqueeze(0) for name, vector in row.items()})

    def _add(self, clients: Tensor, log: RowLog, index: Index) -> None:
        for some in torch.split(clients, _AT_ONCE):
            coded = encoded(some, self._rows.read(some), self.code)
            for (client, _), place in zip(coded, log.add(coded), strict=True):
                index.point(client, place)
