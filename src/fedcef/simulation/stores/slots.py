"""Rows in memory: a place for a row is found when its client first takes part."""

from __future__ import annotations

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.simulation.stores.row_codes import BFloat16, Exact
from fedcef.simulation.stores.rows import Rows, numbers


class Slots(Rows):
    """Tables that grow with the clients that were seen; four bytes for each of the others.

    Args:
        first: the row that every client begins with; rows are read on its device.
        num_clients: how many clients there are.
        device: where the rows lie; that of `first` unless another is named.
        dtype: the type in which floating values are kept; as they come unless another is named.
    """

    def __init__(
        self,
        first: State,
        num_clients: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.first, self.num_clients = first, num_clients
        self._device, self._dtype = device, dtype
        self.code = BFloat16() if dtype == torch.bfloat16 else Exact()
        self._slot = torch.full((num_clients,), -1, dtype=torch.int32)
        self._used = 0
        self._tables = {name: self._like(vector, device, dtype) for name, vector in first.items()}

    def read(self, clients: Tensor) -> State:
        """The clients' rows, on the first row's device."""
        slots = self._slot[numbers(clients)].long()
        new = slots < 0
        return {name: self._rows(name, slots, new) for name in self.first}

    def write(self, clients: Tensor, rows: State) -> None:
        """The clients' rows, where they lie; new clients get the next places."""
        clients = numbers(clients)
        new = clients[self._slot[clients] < 0]
        if len(new):
            self._make_room(self._used + len(new))
            self._slot[new] = torch.arange(self._used, self._used + len(new), dtype=torch.int32)
            self._used += len(new)
        slots = self._slot[clients].long()
        for name, table in self._tables.items():
            table.index_copy_(0, slots.to(table.device), rows[name].to(table.device, table.dtype))

    def touched(self) -> Tensor:
        """The clients that have a place."""
        return (self._slot >= 0).nonzero().flatten()

    def emptied(self) -> Slots:
        """No places taken."""
        return Slots(self.first, self.num_clients, self._device, self._dtype)

    def _rows(self, name: str, slots: Tensor, new: Tensor) -> Tensor:
        first, table = self.first[name], self._tables[name]
        if bool(new.all()):
            return first.expand(len(slots), *first.shape).clone()
        rows = table[slots.clamp(min=0).to(table.device)].to(first.device, first.dtype)
        begin = new.nonzero().flatten().to(rows.device)  # found on the host, so that no device is waited for
        return rows.index_copy_(0, begin, first.expand(len(begin), *first.shape))

    def _make_room(self, wanted: int) -> None:
        have = len(next(iter(self._tables.values()), ()))
        if wanted <= have:
            return
        room = min(self.num_clients, max(wanted, 2 * have, 64))
        for name, table in self._tables.items():
            larger = table.new_empty((room, *table.shape[1:]))
            larger[: self._used] = table[: self._used]
            self._tables[name] = larger

    @staticmethod
    def _like(vector: Tensor, device: torch.device | str | None, dtype: torch.dtype | None) -> Tensor:
        dtype = dtype if vector.is_floating_point() else None
        return torch.empty((0, *vector.shape), device=device or vector.device, dtype=dtype or vector.dtype)
