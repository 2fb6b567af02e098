"""Clients as lists of numbers into a pool of samples, which is not copied: the same sample may be many clients'."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedcef.core.errors import ProblemError
from fedcef.problems.client_data import ClientData, Convert, Look, Samples
from fedcef.problems.labels import Labels, are_words
from fedcef.problems.reading import check_finite, take_apart


class PoolData(ClientData):
    """Clients whose samples are those of a pool; a kind of it says which."""

    captures = True

    def __init__(self, pool: Samples) -> None:
        self.pool = pool

    @abstractmethod
    def numbers(self, clients: Tensor, rows: Tensor) -> Tensor:
        """Where in the pool the clients' own samples lie: (S,) and (S, m) -> (S, m)."""

    @property
    def example(self) -> Samples:
        """The first samples of the pool."""
        return self.pool[:2]

    def samples(self, client: int, count: int | None = None) -> Samples:
        """A client's samples, or the first `count` of them, gathered from the pool."""
        who = torch.tensor([client], device=self.device)
        size = int(self.sizes_of(who)[0])
        rows = torch.arange(size if count is None else min(size, count), device=self.device)
        return self.gather(self.numbers(who, rows.unsqueeze(0))[0])

    def tables(self, clients: Tensor) -> Samples:
        """All samples of clients of equal size, gathered from the pool."""
        rows = torch.arange(self.largest, device=self.device).expand(len(clients), -1)
        return self.gather(self.numbers(clients, rows))

    def batches(self, clients: Tensor, rows: Tensor) -> Callable[[int], Samples]:
        """take(k): a gather from the pool, which a device does without the host."""
        numbers = self.numbers(clients, rows.flatten(1)).view(rows.shape)
        return lambda k: self.gather(numbers[:, k])

    def distinct_targets(self) -> Tensor | None:
        """Of the whole pool."""
        return self.pool.targets.unique()  # type: ignore[no-any-return, no-untyped-call]

    def gather(self, numbers: Tensor) -> Samples:
        """The samples of these numbers, in the shape of the numbers."""
        return self.pool[numbers]

    @property
    def device(self) -> torch.device:
        """Where the samples lie."""
        return self.pool.inputs.device

    @property
    @abstractmethod
    def largest(self) -> int:
        """The size of the largest client."""


class IndexedData(PoolData):
    """Clients as lists of numbers, one after the other in one tensor: 8 bytes a sample and 16 a client."""

    def __init__(self, pool: Samples, order: Tensor, sizes: Tensor) -> None:
        """`order` holds client 0's numbers first, then client 1's, and so on."""
        super().__init__(pool)
        self._list(order, sizes)

    def _list(self, order: Tensor, sizes: Tensor) -> None:
        self.order, self.sizes, self.starts = order, sizes, sizes.cumsum(0) - sizes
        self._largest = int(sizes.max())  # now: within a round a GPU would be waited for
        self.equal_sizes = int(sizes.min()) == self._largest

    @property
    def largest(self) -> int:
        """The size of the largest client."""
        return self._largest

    def numbers(self, clients: Tensor, rows: Tensor) -> Tensor:
        """Read from the lists."""
        return self.order[self.starts[clients].unsqueeze(-1) + rows]

    def owner(self, number: int) -> int:
        """The first client that holds a sample, or -1."""
        places = (self.order == number).nonzero()
        return int(torch.searchsorted(self.starts, places[0], right=True)) - 1 if len(places) else -1

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        """Pool and lists on a device."""
        return self._with(self.pool.to(device, dtype), self.order.to(device), self.sizes.to(device))

    def converted(self, convert: Convert) -> ClientData:
        """The same lists into the pool in its other form."""
        return self._with(convert(self.pool, "the pool"), self.order, self.sizes)

    def _with(self, pool: Samples, order: Tensor, sizes: Tensor) -> Self:
        data = type(self)(pool, order, sizes)
        data.classes = self.classes
        return data

    def checked(self, look: Look) -> ClientData:
        """The same, after the pool was looked at."""
        look(self.pool, lambda row: f"Client {who}" if (who := self.owner(row)) >= 0 else "The pool")
        return self

    def identity(self) -> list[Tensor]:
        """All there is."""
        return [self.sizes, self.order, self.pool.inputs, self.pool.targets]


def from_arrays(inputs: Any, targets: Any, indices: Sequence[Any] | Tensor) -> ClientData:
    """Clients whose samples lie in arrays that all of them share; nothing is copied.

    Args:
        inputs: Of all samples, a tensor or an array.
        targets: Likewise.
        indices: For each client the numbers of its samples; a sample may be given to several clients.  For many clients
            of one size a table (N, size) is quickest.

    >>> inputs, targets = torch.arange(6.0).view(6, 1), torch.tensor([0, 1, 0, 1, 0, 1])
    >>> data = from_arrays(inputs, targets, indices=[[0, 1, 2], [5, 0]])
    >>> data.samples(1).inputs.flatten().tolist()
    [5.0, 0.0]
    """
    pool, classes = read_pool(inputs, targets)
    data = IndexedData(pool, *read_indices(indices, len(pool)))
    data.classes = classes
    return data


def read_pool(inputs: Any, targets: Any) -> tuple[Samples, tuple[Any, ...]]:
    """The samples of a pool, and the classes that their targets are numbers of, if these were words."""
    raw = take_apart((inputs, targets), "the pool")
    labels = Labels.found([raw.targets]) if are_words(raw.targets) else None
    pool = raw.samples(labels)
    check_finite(pool, "the pool")
    return pool, labels.classes if labels else ()


def read_indices(indices: Sequence[Any] | Tensor, samples: int) -> tuple[Tensor, Tensor]:
    """Lists of sample numbers as one tensor, client after client, and how long each of them is."""
    try:
        if isinstance(indices, Tensor | np.ndarray) and indices.ndim == 2:
            order, sizes = np.asarray(indices).reshape(-1), np.full(len(indices), indices.shape[1])
        else:
            parts = [np.asarray(part) for part in indices]
            sizes = np.array([len(part) for part in parts], dtype=np.int64)
            order = np.concatenate(parts) if sizes.sum() else np.zeros(0)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"The indices must be one sequence of sample numbers for each client: {error}") from error
    if not sizes.size or not sizes.min():
        empty = int(sizes.argmin()) if sizes.size else 0
        raise ProblemError(f"The data of client {empty} is empty; leave the client out or give it samples.")
    if order.dtype.kind not in "iu":
        raise ProblemError(f"The indices are of the type {order.dtype}; they must be numbers of samples, 0, 1, 2, ….")
    return _checked(torch.from_numpy(order.astype(np.int64)), torch.from_numpy(sizes), samples)


def _checked(order: Tensor, sizes: Tensor, samples: int) -> tuple[Tensor, Tensor]:
    """The lists, if all samples exist."""
    outside = ((order < 0) | (order >= samples)).nonzero()
    if len(outside):
        client = int(torch.searchsorted(sizes.cumsum(0), outside[0], right=True))
        raise ProblemError(
            f"Client {client} holds sample {int(order[outside[0]])}, which does not exist; samples are numbered 0 to "
            f"{samples - 1}."
        )
    return order, sizes
