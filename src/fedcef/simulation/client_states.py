"""Where the clients' own states are kept between rounds.

A round takes the rows of its cohort and puts new ones in their place.  By default they are rows of tables, one for each
name; `fedcef.simulation.stores` has others (on a disk, on the host, without zeros), and one of the user's own is given
to `Simulation` by class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from fedcef.algorithms.algorithm import State


class States(Protocol):
    """What makes the states before the first round: a class of `ClientStates`, or options that choose one."""

    def start(self, state: State, num_clients: int) -> ClientStates:
        """The states before the first round: every client has this one."""


class ClientStates(ABC):
    """The states of all clients: a value; `put` gives the states after a round and leaves the old ones as they were."""

    captures: ClassVar[bool] = False
    """Whether `take` and `put` compute on the tensors of `tensors()` alone, so that a CUDA graph can hold them."""

    @classmethod
    @abstractmethod
    def start(cls, state: State, num_clients: int) -> ClientStates:
        """The states before the first round: every client has this one."""

    @abstractmethod
    def take(self, clients: Tensor) -> State:
        """The states of the given clients, in their order: a table (S, p) for each name."""

    @abstractmethod
    def put(self, clients: Tensor, rows: State) -> ClientStates:
        """All states, with these rows for the given clients."""

    @abstractmethod
    def mean(self) -> State:
        """The mean over all clients: a vector (p,) for each name."""

    def copied(self) -> ClientStates:
        """The same states in memory of their own, for whoever overwrites those of `tensors`."""
        return self.with_tensors({name: tensor.clone() for name, tensor in self.tensors().items()})

    @abstractmethod
    def tensors(self) -> State:
        """All there is to keep, as named tensors, for a snapshot."""

    @abstractmethod
    def with_tensors(self, tensors: State) -> ClientStates:
        """The states that `tensors` gave these tensors for; raises ValueError if they are of another problem."""


@dataclass(frozen=True, eq=False)
class Table(ClientStates):
    """States in memory: one table (N, p) for each name."""

    tables: State
    num_clients: int

    captures: ClassVar[bool] = True

    @classmethod
    def start(cls, state: State, num_clients: int) -> Table:
        tables = {name: vector.expand(num_clients, *vector.shape).clone() for name, vector in state.items()}
        return cls(tables, num_clients)

    def take(self, clients: Tensor) -> State:
        if len(clients) == self.num_clients:
            return self.tables
        return {name: table[clients] for name, table in self.tables.items()}

    def put(self, clients: Tensor, rows: State) -> Table:
        if len(clients) == self.num_clients:
            return Table(rows, self.num_clients)
        changed = {name: self.tables[name].index_copy(0, clients, table) for name, table in rows.items()}
        return Table(changed, self.num_clients)

    def mean(self) -> State:
        return {name: table.mean(0) for name, table in self.tables.items()}

    def tensors(self) -> State:
        return self.tables

    def with_tensors(self, tensors: State) -> Table:
        if "client" in tensors:  # of a store that has rows of those seen alone, of another device
            clients, rows = tensors["client"], {name: t for name, t in tensors.items() if name != "client"}
            if rows.keys() != self.tables.keys():
                raise ValueError("clients are of another method")
            return self.put(clients, rows) if len(clients) else self
        for name in tensors.keys() - self.tables.keys():
            raise ValueError(f"clients/{name} is of another method")
        for name, table in self.tables.items():
            if name not in tensors or tensors[name].shape != table.shape or tensors[name].dtype != table.dtype:
                raise ValueError(f"clients/{name} differs")
        return Table({name: tensors[name] for name in self.tables}, self.num_clients)
