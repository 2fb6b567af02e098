"""Rows on a disk, and rows in memory that a disk can bring back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.core.amounts import format_bytes
from fedcef.core.errors import RunError
from fedcef.simulation.stores.coded import encoded, stacked
from fedcef.simulation.stores.row_codes import Exact, RowCode
from fedcef.simulation.stores.row_log import Place, RowLog
from fedcef.simulation.stores.rows import Rows, numbers

_SLACK = 64 << 20  # bytes that may be out of date before a file is written anew, whatever the rest is


class Filed(Rows):
    """Rows on a disk: twelve bytes in memory for each client, and what a round reads.

    Args:
        first: the row that every client begins with; rows are read on its device.
        num_clients: how many clients there are.
        log: the file.
        code: how a row is written.
        limit: how many bytes the rows may take; 0 = any.
    """

    def __init__(self, first: State, num_clients: int, log: RowLog, code: RowCode, limit: int = 0) -> None:
        self.first, self.num_clients = first, num_clients
        self._log, self._code, self._limit = log, code, limit
        self._like = {name: vector.cpu() for name, vector in first.items()}
        self._start = np.zeros(num_clients, np.int64)
        self._size = np.zeros(num_clients, np.int32)
        self._live = 0

    def read(self, clients: Tensor) -> State:
        """The clients' rows, read from the file."""
        return stacked([self._row(client) for client in numbers(clients).tolist()], self.first)

    def write(self, clients: Tensor, rows: State) -> None:
        """The clients' rows, added to the file; an error where they take more than they may."""
        if not self.first:
            return
        coded = encoded(clients, rows, self._code)
        for (client, _), place in zip(coded, self._log.add(coded), strict=True):
            self._point(client, place)
        if self._limit and self._live > self._limit:
            raise RunError(
                f"The states of {len(self.touched())} clients take {format_bytes(self._live)}, more than store.limit = "
                f"{format_bytes(self._limit)}; raise it, or take a shorter store.code."
            )

    def remembered(self, clients: Tensor, known: State | None) -> tuple[int, list[Place]]:
        """Where the rows lie: nothing in the file is overwritten."""
        places = [Place(int(self._start[client]), int(self._size[client])) for client in numbers(clients).tolist()]
        return self._log.number, places

    def bring_back(self, clients: Tensor, remembered: tuple[int, list[Place]]) -> None:
        """Look again where the rows lay; those that lie in the file before this one are written once more."""
        number, places = remembered
        if number == self._log.number:
            for client, place in zip(numbers(clients).tolist(), places, strict=True):
                self._point(client, place)
            return
        old = self._log.at(number)
        rows = [self._read(old, client, place) for client, place in zip(numbers(clients).tolist(), places, strict=True)]
        self.write(clients, stacked(rows, self.first))

    def touched(self) -> Tensor:
        """The clients that have a row in the file."""
        return torch.from_numpy(np.flatnonzero(self._size))

    def keep(self) -> Tensor:
        """The file's number and length, once it is durable; first written anew where most of it is out of date."""
        if self._log.length > 2 * self._live + _SLACK:
            self._write_anew()
        return torch.tensor(self._log.keep())

    def go_back(self, mark: Tensor) -> None:
        """Cut the file off where it ended then, and find everyone's last row."""
        for client, place in self._log.go_back(*mark.tolist()):
            self._point(client, place)

    def emptied(self) -> Filed:
        """The same file, of which nothing is known."""
        return Filed(self.first, self.num_clients, self._log, self._code, self._limit)

    def _row(self, client: int) -> State:
        return self._read(self._log, client, Place(int(self._start[client]), int(self._size[client])))

    def _read(self, log: RowLog, client: int, place: Place) -> State:
        return self._code.decode(log.read(place, client), self._like) if place.size else self._like

    def _point(self, client: int, place: Place) -> None:
        if not 0 <= client < self.num_clients:
            raise ValueError("clients/log is of another problem")
        self._live += place.size - int(self._size[client])
        self._start[client], self._size[client] = place

    def _write_anew(self) -> None:
        """The rows that are good, in the next file."""
        clients = self.touched().tolist()
        old = self._log.at(self._log.number)
        places = [Place(int(self._start[client]), int(self._size[client])) for client in clients]
        self._log.begin_next()
        for client, place in zip(clients, places, strict=True):
            self._point(client, self._log.add([(client, old.read(place, client))])[0])


class Journalled(Rows):
    """Rows in memory, of which a file keeps those that changed since it was last asked to."""

    def __init__(self, rows: Rows, log: RowLog) -> None:
        self.first, self.num_clients = rows.first, rows.num_clients
        self._rows, self._log, self._code = rows, log, Exact()
        self._changed: set[int] = set()
        self._live = 0

    def read(self, clients: Tensor) -> State:
        """The clients' rows, from memory."""
        return self._rows.read(clients)

    def write(self, clients: Tensor, rows: State) -> None:
        """The clients' rows, into memory; they are remembered as changed."""
        self._rows.write(clients, rows)
        self._changed.update(numbers(clients).tolist())

    def touched(self) -> Tensor:
        """The clients that have a row."""
        return self._rows.touched()

    def keep(self) -> Tensor:
        """The file's number and length, once the rows that changed are in it."""
        if self.first and self._changed:
            if self._log.length > 2 * self._live + _SLACK:
                self._log.begin_next()
                self._changed = set(self.touched().tolist())
            self._add(sorted(self._changed))
        self._changed.clear()
        return torch.tensor(self._log.keep())

    def emptied(self) -> Journalled:
        """Nothing in memory; the same file."""
        return Journalled(self._rows.emptied(), self._log)

    def go_back(self, mark: Tensor) -> None:
        """Cut the file off where it ended then, and read everyone's last row."""
        like = {name: vector.cpu() for name, vector in self.first.items()}
        latest = dict(self._log.go_back(*mark.tolist()))
        for client, place in latest.items():
            if not 0 <= client < self.num_clients:
                raise ValueError("clients/log is of another problem")
            row = self._code.decode(self._log.read(place, client), like)
            self._rows.write(torch.tensor([client]), {name: vector.unsqueeze(0) for name, vector in row.items()})
        self._live = sum(place.size for place in latest.values())

    def _add(self, clients: Iterable[int]) -> None:
        for some in torch.split(torch.tensor(list(clients)), 64):
            coded = encoded(some, self._rows.read(some), self._code)
            size = sum(place.size for place in self._log.add(coded)) // len(coded)
            self._live = size * len(self.touched())
