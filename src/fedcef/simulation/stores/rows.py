"""Where rows lie: the states of the clients that have taken part, in memory, on the host or on a disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.simulation.stores.row_codes import Exact, RowCode


class Rows(ABC):
    """One row for each client and name, overwritten in place; a client that was never written has the first row."""

    first: State
    """The row that every client begins with."""
    num_clients: int
    code: RowCode = Exact()
    """How a row is written in a file."""

    @abstractmethod
    def read(self, clients: Tensor) -> State:
        """The rows of the given clients, in their order, in memory of their own."""

    @abstractmethod
    def write(self, clients: Tensor, rows: State) -> None:
        """Put these rows in the place of the given clients'."""

    @abstractmethod
    def touched(self) -> Tensor:
        """The clients that were written, in ascending order."""

    @abstractmethod
    def emptied(self) -> Rows:
        """The same before anything was written; those in a file share it, and lose what is beyond the next mark."""

    def remembered(self, clients: Tensor, known: State | None) -> Any:
        """What brings the rows of these clients back as they are now, of which the caller may know them already."""
        return self.read(clients) if known is None else known

    def bring_back(self, clients: Tensor, remembered: Any) -> None:
        """Have the rows that `remembered` gave this for."""
        self.write(clients, remembered)

    def changed(self) -> Tensor:
        """The clients whose rows may have changed since `kept`, in ascending order; all that were written, unless
        somebody notes which."""
        return self.touched()

    def kept(self) -> None:  # noqa: B027
        """All rows as they are now are kept somewhere else."""

    def keep(self) -> Tensor | None:
        """Make everything durable and say by which mark it is found again; None where nothing is kept on a disk."""
        return None

    def go_back(self, mark: Tensor) -> None:
        """Have the rows that `keep` gave this mark for; raises ValueError if they are not there."""
        raise ValueError("clients/log is of another store")


def numbers(clients: Tensor) -> Tensor:
    """The clients' numbers on the host, where rows are looked up."""
    return clients if clients.device.type == "cpu" else clients.to(torch.device("cpu"))
