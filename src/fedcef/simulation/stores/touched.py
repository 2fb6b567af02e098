"""States that exist once they are touched.

A round changes the rows of its cohort, and that is what it costs: they are overwritten where they lie, whatever the
number of clients.  Still a store is a value, so that a byte budget can play a round again and an interrupt finds a
whole state.  The newest value reads the rows as they lie.  An older one remembers what the next one overwrote, and puts
it back when it is asked for anything (the version trees of Baker, "Shallow binding in LISP 1.5", 1978); one that
nobody asks for any more is forgotten together with what it remembers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.core.interrupts import uninterrupted
from fedcef.simulation.client_states import ClientStates
from fedcef.simulation.stores.noted import Noted
from fedcef.simulation.stores.rows import Rows
from fedcef.simulation.stores.slots import Slots

_TABLE = 1 << 28  # entries of a table that may be made for a moment, to take its mean as `Table` does


class Touched(ClientStates):
    """A row for every client that has taken part; all others have the first state."""

    captures: ClassVar[bool] = False

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._newer: tuple[Touched, Tensor, Any] | None = None  # and what it overwrote: clients, and what was theirs
        self._taken: tuple[Tensor, State] | None = None  # the last rows that were read: mostly those to be overwritten

    @classmethod
    def start(cls, state: State, num_clients: int) -> Touched:
        """In memory; other places are chosen by `fedcef.simulation.stores.Store`."""
        return cls(Slots(state, num_clients))

    def take(self, clients: Tensor) -> State:
        """The rows of the given clients."""
        self._return()
        rows = self._rows.read(clients)
        self._taken = clients, rows
        return rows

    def put(self, clients: Tensor, rows: State) -> Touched:
        """The states with these rows, which are written where the old ones lie; this value remembers those."""
        if not self._rows.first:  # methods whose clients keep nothing
            return self
        self._return()
        known, self._taken = self._taken, None
        taken = known[1] if known is not None and known[0] is clients else None
        before = self._rows.remembered(clients, taken)
        after = Touched(self._rows)
        with uninterrupted():
            self._rows.write(clients, rows)
            self._newer = after, clients, before
        return after

    def mean(self) -> State:
        """The mean over all clients; with few of them to the last bit what a table would give."""
        self._return()
        rows = self._rows
        entries = sum(vector.numel() for vector in rows.first.values())
        if rows.num_clients * entries <= _TABLE:
            return {name: table.mean(0) for name, table in rows.read(torch.arange(rows.num_clients)).items()}
        beyond = {name: torch.zeros_like(vector) for name, vector in rows.first.items()}
        for some in torch.split(rows.touched(), max(1, _TABLE // (8 * max(1, entries)))):
            for name, table in rows.read(some).items():
                beyond[name] += (table - rows.first[name]).sum(0)
        return {name: vector + beyond[name] / rows.num_clients for name, vector in rows.first.items()}

    def touched(self) -> Tensor:
        """The clients that have a row of their own."""
        self._return()
        return self._rows.touched()

    def noted(self) -> Touched:
        """The same, with notes of which rows change."""
        return Touched(Noted(self._rows))

    def changed(self) -> Tensor:
        """The clients whose rows may have changed since they were `kept`."""
        self._return()
        return self._rows.changed()

    def kept(self) -> None:
        """All rows as they are now are kept somewhere else."""
        self._return()
        self._rows.kept()

    def copied(self) -> Touched:
        """This one: what it reads does not change, whatever is put into it."""
        return self

    def tensors(self) -> State:
        """The mark by which a disk finds the rows again, or the touched clients and their rows."""
        if not self._rows.first:
            return {}
        self._return()
        mark = self._rows.keep()
        if mark is not None:
            return {"log": mark}
        clients = self._rows.touched()
        return {"client": clients, **self._rows.read(clients)}

    def with_tensors(self, tensors: State) -> Touched:
        """The states of a mark, of touched clients' rows, or of a table with all of them, as earlier versions kept."""
        if not self._rows.first:
            return self
        rows = self._rows.emptied()
        if "log" in tensors:
            rows.go_back(tensors["log"])
            return Touched(rows)
        clients = tensors.get("client")
        clients = torch.arange(rows.num_clients) if clients is None else clients
        if len(clients) and not 0 <= int(clients.min()) <= int(clients.max()) < rows.num_clients:
            raise ValueError("clients/client differs")
        for name in tensors.keys() - rows.first.keys() - {"client"}:
            raise ValueError(f"clients/{name} is of another method")
        for name, vector in rows.first.items():
            table = tensors.get(name)
            if table is None or table.shape != (len(clients), *vector.shape) or table.dtype != vector.dtype:
                raise ValueError(f"clients/{name} differs")
        rows.write(clients, {name: tensors[name] for name in rows.first})
        return Touched(rows)

    def _return(self) -> None:
        """Have the rows as this value knows them."""
        if self._newer is None:
            return
        chain: list[Touched] = []
        at: Touched = self
        while at._newer is not None:
            chain.append(at)
            at = at._newer[0]
        with uninterrupted():
            for older in reversed(chain):
                assert older._newer is not None
                newer, clients, before = older._newer
                now = self._rows.remembered(clients, None)
                self._rows.bring_back(clients, before)
                newer._newer, newer._taken, older._newer = (older, clients, now), None, None
