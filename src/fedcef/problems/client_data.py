"""Where the clients' samples come from.

Oracles and evaluation ask a `ClientData` for samples and never where these lie.  `PooledData` keeps those of all
clients in one table; `fedcef.problems.clients` has sources that read a client when it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ProblemError
from fedcef.problems.several import Packing

if TYPE_CHECKING:
    from fedcef.problems.reading import Reading


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and targets of equally many samples."""

    inputs: Tensor
    targets: Tensor
    packing: Packing | None = None
    """How several inputs of a sample lie in `inputs`, where there are several."""

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice | Tensor) -> Samples:
        """Some of the samples."""
        return Samples(self.inputs[rows], self.targets[rows], self.packing)

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of one sample's input and target."""
        return tuple(self.inputs.shape[1:]), tuple(self.targets.shape[1:])

    @property
    def dtypes(self) -> tuple[torch.dtype, torch.dtype]:
        """Of inputs and targets."""
        return self.inputs.dtype, self.targets.dtype

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return self.inputs.nbytes + self.targets.nbytes

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Samples:
        """The same samples on a device; floating values in the given type."""

        def move(values: Tensor) -> Tensor:
            return values.to(device, dtype if values.is_floating_point() else None)

        return Samples(move(self.inputs), move(self.targets), self.packing)


Convert = Callable[[Samples, str], Samples]
"""convert(samples, whose): the samples in the form in which they are used; `whose` is for messages."""

Look = Callable[[Samples, Callable[[int], str]], None]
"""look(samples, whose): raise a `ProblemError` where samples cannot be trained on; whose(row) names a row's owner."""


class ClientData(ABC):
    """The samples of N clients, each of which numbers its own from 0.

    A source has the three abstract methods and `sizes`.  One that learns sizes as it reads has `num_clients` and
    `sizes_of` in place of that; a round asks only for the sizes of its cohort.
    """

    sizes: Tensor
    """How many samples each client has, (N,) int64, on the device on which they are computed with."""
    equal_sizes: bool = False
    """Whether all clients are known to have equally many samples."""
    captures: bool = False
    """Whether minibatches are gathered without the host, so that a CUDA graph can hold them."""
    classes: tuple[Any, ...] = ()
    """The classes that targets are numbers of, where these were words."""

    @property
    def num_clients(self) -> int:
        """N, how many clients there are."""
        return len(self.sizes)

    @property
    def example(self) -> Samples:
        """A few samples, for their shapes and types; none where nobody has any."""
        return self.samples(0, 2)

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

    def sizes_of(self, clients: Tensor) -> Tensor:
        """How many samples these clients have: (S,) -> (S,)."""
        return self.sizes[clients]

    def draw(self, clients: Tensor, keys: Tensor, steps: int, size: int) -> Tensor:
        """Samples of K minibatches for every client, drawn with replacement from its key: (S,), (S,) -> (S, K, B)."""
        return rng.integers(keys, steps * size, self.sizes_of(clients)).view(len(clients), steps, size)

    def prefetch(self, clients: Tensor) -> None:
        """A hint that these clients are asked for next: a source may read them meanwhile.  Nothing by default."""
        return

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> ClientData:
        """The same samples, handed out on a device and with floating values in the given type."""
        from fedcef.problems.clients.selected import Selected  # which is one of these

        here, there = self.example, self.example.to(device, dtype)
        same = (here.inputs.device, *here.dtypes) == (there.inputs.device, *there.dtypes)
        return self if same else Selected(self, None, torch.device(device), dtype)

    def only(self, clients: Sequence[int] | None) -> ClientData:
        """Some of the clients, in the order given; None = everyone.

        In a deployment a problem of one's own is asked for one client; nobody else's samples are read then.
        """
        from fedcef.problems.clients.selected import Selected  # which is one of these

        return self if clients is None else Selected(self, torch.tensor(list(clients), dtype=torch.int64))

    def checked(self, look: Look) -> ClientData:
        """The same samples, all looked at: at once if they lie in memory, otherwise whenever some are read."""
        return self

    def converted(self, convert: Convert) -> ClientData:
        """The same samples in another form: at once if they lie in memory, otherwise whenever some are read."""
        return self

    def read_by(self, reading: Reading) -> ClientData:
        """The same samples with targets that are the numbers of other classes, or put together by a function."""
        if reading.collate is not None:
            raise ProblemError(
                "collate is for samples that are fetched one by one; these lie in tables already, leave it out."
            )

        def convert(samples: Samples, whose: str) -> Samples:
            assert reading.labels is not None, "something is to be read otherwise"
            targets = reading.labels.renumber(self.classes, samples.targets, f"The targets of {whose}")
            return Samples(samples.inputs, targets, samples.packing)

        return self.converted(convert)

    def distinct_targets(self) -> Tensor | None:
        """The values that targets have, in ascending order, if all samples lie in memory."""
        return None

    def identity(self) -> list[Tensor]:
        """Tensors that tell these samples from others; those of a source that is not read through are a few of them."""
        example = self.example
        return [torch.tensor([self.num_clients]), example.inputs, example.targets]


@dataclass(frozen=True, eq=False)
class PooledData(ClientData):
    """All clients' samples in one table in memory; client i holds rows starts[i] .. starts[i] + sizes[i]."""

    table: Samples
    starts: Tensor  # (N,) int64
    sizes: Tensor  # (N,) int64
    captures = True

    @classmethod
    def of(cls, clients: Sequence[Samples]) -> PooledData:
        """The samples of at least one client, copied into one table."""
        inputs, targets = torch.cat([s.inputs for s in clients]), torch.cat([s.targets for s in clients])
        return cls.cut(
            Samples(inputs, targets, clients[0].packing), torch.tensor([len(s) for s in clients], dtype=torch.int64)
        )

    @classmethod
    def cut(cls, table: Samples, sizes: Tensor) -> PooledData:
        """A table that holds one client's samples after the other's."""
        sizes = sizes.to(table.inputs.device)
        return cls(table, sizes.cumsum(0) - sizes, sizes)

    @classmethod
    def empty(cls, like: Samples, num_clients: int) -> PooledData:
        """Clients without samples, as a server knows them."""
        nothing = Samples(like.inputs[:0].clone(), like.targets[:0].clone(), like.packing)
        return cls.cut(nothing, torch.zeros(num_clients, dtype=torch.int64))

    @cached_property
    def equal_sizes(self) -> bool:  # type: ignore[override]
        """Whether all clients have equally many samples."""
        return not len(self.sizes) or bool((self.sizes == self.sizes[0]).all())

    @property
    def example(self) -> Samples:
        """The first samples of the table."""
        return self.table[:2]

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

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> PooledData:
        """The table on a device, its floating values in the given type."""
        return PooledData(self.table.to(device, dtype), self.starts.to(device), self.sizes.to(device))

    def only(self, clients: Sequence[int] | None) -> ClientData:
        """A table with these clients alone."""
        if clients is None:
            return self
        return PooledData.of([self.samples(i) for i in clients]) if clients else PooledData.empty(self.table, 0)

    def checked(self, look: Look) -> PooledData:
        """The same, after all samples were looked at."""
        if len(self.sizes) and not int(self.sizes.min()):
            empty = int(self.sizes.argmin())
            raise ProblemError(f"The data of client {empty} is empty; leave the client out or give it samples.")
        look(self.table, lambda row: f"Client {int(torch.searchsorted(self.starts, row, right=True)) - 1}")
        return self

    def converted(self, convert: Convert) -> PooledData:
        """The table in another form."""
        return PooledData(convert(self.table, "the clients"), self.starts, self.sizes)

    def distinct_targets(self) -> Tensor:
        """Of the whole table."""
        return self.table.targets.unique()  # type: ignore[no-any-return, no-untyped-call]

    def identity(self) -> list[Tensor]:
        """All there is."""
        return [self.sizes, self.table.inputs, self.table.targets]
