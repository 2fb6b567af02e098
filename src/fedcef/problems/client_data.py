"""Where the clients' samples come from.

Oracles and evaluation ask a `ClientData` for samples and never where these lie.  `PooledData` keeps those of all
clients in one table; a source that reads a client when it is asked for implements the same three methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedcef.core import rng


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and targets of equally many samples."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice | Tensor) -> Samples:
        """Some of the samples."""
        return Samples(self.inputs[rows], self.targets[rows])

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of one sample's input and target."""
        return tuple(self.inputs.shape[1:]), tuple(self.targets.shape[1:])

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Samples:
        """The same samples on a device; floating values in the given type."""

        def move(values: Tensor) -> Tensor:
            return values.to(device, dtype if values.is_floating_point() else None)

        return Samples(move(self.inputs), move(self.targets))


class ClientData(ABC):
    """The samples of N clients, each of which numbers its own from 0."""

    sizes: Tensor
    """How many samples each client has, (N,) int64, on the device on which they are computed with."""

    @abstractmethod
    def samples(self, client: int, count: int | None = None) -> Samples:
        """A client's samples in their order, or the first `count` of them."""

    @abstractmethod
    def tables(self, clients: Tensor) -> Samples:
        """All samples of clients (S,) of equal size, one table for each: (S, size, ...)."""

    @abstractmethod
    def batches(self, clients: Tensor, rows: Tensor) -> Callable[[int], Samples]:
        """take(k): the k-th of the clients' batches of a round, (S, B, ...), whose samples are rows[:, k].

        `rows` (S, K, B) are the clients' own numbers of their samples.  All of a round is said at once, so that a
        source can read ahead, and a client only once.
        """

    def draw(self, clients: Tensor, keys: Tensor, steps: int, size: int) -> Tensor:
        """Samples of K minibatches for every client, drawn with replacement from its key: (S,), (S,) -> (S, K, B)."""
        return rng.integers(keys, steps * size, self.sizes[clients]).view(len(clients), steps, size)


@dataclass(frozen=True, eq=False)
class PooledData(ClientData):
    """All clients' samples in one table in memory; client i holds rows starts[i] .. starts[i] + sizes[i]."""

    table: Samples
    starts: Tensor  # (N,) int64
    sizes: Tensor  # (N,) int64

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """Starts and sizes on the host: to ask a GPU for each client's would make it wait."""
        return list(zip(self.starts.tolist(), self.sizes.tolist(), strict=True))

    def samples(self, client: int, count: int | None = None) -> Samples:
        """A client's samples, or the first `count` of them: a view of the table."""
        start, size = self._places[client]
        return self.table[start : start + (size if count is None else min(size, count))]

    def tables(self, clients: Tensor) -> Samples:
        """All samples of clients of equal size; those of everyone are a view of the table."""
        inputs, targets = (
            values.view(len(self.sizes), -1, *values.shape[1:]) for values in (self.table.inputs, self.table.targets)
        )
        everyone = len(clients) == len(self.sizes)
        return Samples(inputs, targets) if everyone else Samples(inputs[clients], targets[clients])

    def batches(self, clients: Tensor, rows: Tensor) -> Callable[[int], Samples]:
        """take(k): a gather from the table, which a device does without the host."""
        rows = self.starts[clients].view(-1, 1, 1) + rows
        return lambda k: self.table[rows[:, k]]
