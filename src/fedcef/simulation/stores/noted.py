"""Rows of which it is known which have changed since they were last kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.simulation.stores.rows import Rows, numbers


class Noted(Rows):
    """Rows that lie anywhere, and notes of those that were written."""

    def __init__(self, rows: Rows) -> None:
        self.first, self.num_clients, self.code = rows.first, rows.num_clients, rows.code
        self._rows = rows
        self._changed: set[int] = set()

    def read(self, clients: Tensor) -> State:
        """The clients' rows."""
        return self._rows.read(clients)

    def write(self, clients: Tensor, rows: State) -> None:
        """The clients' rows, which are remembered as changed."""
        self._rows.write(clients, rows)
        self._changed.update(numbers(clients).tolist())

    def remembered(self, clients: Tensor, known: State | None) -> Any:
        """What the rows themselves need to come back."""
        return self._rows.remembered(clients, known)

    def bring_back(self, clients: Tensor, remembered: Any) -> None:
        """The rows as they were, which is a change."""
        self._rows.bring_back(clients, remembered)
        self._changed.update(numbers(clients).tolist())

    def touched(self) -> Tensor:
        """The clients that have a row."""
        return self._rows.touched()

    def changed(self) -> Tensor:
        """The clients whose rows were written."""
        return torch.tensor(sorted(self._changed), dtype=torch.int64)

    def kept(self) -> None:
        """Begin anew."""
        self._changed.clear()

    def emptied(self) -> Noted:
        """No rows, and no notes."""
        return Noted(self._rows.emptied())
