"""Rows in memory as bytes: for those that are mostly zeros."""

from __future__ import annotations

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.simulation.stores.row_codes import RowCode
from fedcef.simulation.stores.rows import Rows, numbers


class Coded(Rows):
    """A block of bytes for every client that was written.

    Args:
        first: the row that every client begins with; rows are read on its device.
        num_clients: how many clients there are.
        code: how a row is written.
    """

    def __init__(self, first: State, num_clients: int, code: RowCode) -> None:
        self.first, self.num_clients, self.code = first, num_clients, code
        self._like = {name: vector.cpu() for name, vector in first.items()}
        self._blocks: dict[int, bytes] = {}

    def read(self, clients: Tensor) -> State:
        """The clients' rows, decoded."""
        blocks = [self._blocks.get(client) for client in numbers(clients).tolist()]
        rows = [self._like if block is None else self.code.decode(block, self._like) for block in blocks]
        return stacked(rows, self.first)

    def write(self, clients: Tensor, rows: State) -> None:
        """The clients' rows, encoded."""
        self._blocks.update(encoded(clients, rows, self.code))

    def touched(self) -> Tensor:
        """The clients that have bytes."""
        return torch.tensor(sorted(self._blocks), dtype=torch.int64)

    def emptied(self) -> Coded:
        """No bytes."""
        return Coded(self.first, self.num_clients, self.code)

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return sum(map(len, self._blocks.values()))


def encoded(clients: Tensor, rows: State, code: RowCode) -> list[tuple[int, bytes]]:
    """Each client's number and row as bytes."""
    tables = {name: table.cpu() for name, table in rows.items()}
    return [
        (client, code.encode({name: table[k] for name, table in tables.items()}))
        for k, client in enumerate(numbers(clients).tolist())
    ]


def stacked(rows: list[State], like: State) -> State:
    """Rows as tables, on the device and with the types of `like`."""
    return {
        name: torch.stack([row[name] for row in rows]).to(first.device) if rows else first.new_empty((0, *first.shape))
        for name, first in like.items()
    }
