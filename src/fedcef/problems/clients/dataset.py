"""Clients of a map-style data set: its samples are fetched one by one, as they are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence, Sized
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcef.core.errors import ProblemError
from fedcef.problems.client_data import ClientData, Convert, Look, Samples
from fedcef.problems.clients.pool import IndexedData, read_indices
from fedcef.problems.reading import Form, Reading


class DatasetData(IndexedData):
    """Clients as lists of numbers into a data set, of which no sample is kept."""

    captures = False

    def __init__(
        self,
        dataset: Any,
        order: Tensor,
        sizes: Tensor,
        look: Look | None = None,
        convert: Convert | None = None,
        reading: Reading = Reading(),
    ) -> None:
        """`look` and `convert` are for every sample that is fetched, and `reading` says how they make a table."""
        self._list(order, sizes)
        self.dataset, self._look, self._convert, self._reading = dataset, look, convert, reading
        self.classes = reading.labels.classes if reading.labels else ()

    @cached_property
    def pool(self) -> Samples:  # type: ignore[override]
        """The first samples, for their shapes and types."""
        return self._read(self._fetched(self.order[:2].tolist(), [0, 0]), "client 0")

    @cached_property
    def _form(self) -> Form:
        return Form.of(0, self.pool)

    def _read(self, rows: list[Any], whose: str) -> Samples:
        samples = self._reading.samples(rows, whose)
        return samples if self._convert is None else self._convert(samples, whose)

    def batches(self, clients: Tensor, rows: Tensor) -> Callable[[int], Samples]:
        """take(k): fetched when it is asked for.

        What `__getitem__` draws follows from what is drawn in the round, so that runs repeat: `rows` are the client's
        own, and those of another round are others.
        """
        numbers = self.numbers(clients, rows.flatten(1)).view(rows.shape)
        drawn = [blake2b(mine.numpy().tobytes(), digest_size=8).digest() for mine in rows.cpu().contiguous()]
        starts = [int.from_bytes(digest, "little") for digest in drawn]
        size = rows.shape[2]
        return lambda k: self.gather(numbers[:, k], [start + k * size + j for start in starts for j in range(size)])

    def gather(self, numbers: Tensor, seeds: Sequence[int] | None = None) -> Samples:
        """Fetched from the data set and looked at, in the shape of the numbers.

        `seeds` are for what is drawn in fetching; without them a sample is always the same.
        """
        wanted = numbers.flatten().tolist()
        rows = self._fetched(wanted, wanted if seeds is None else seeds)
        try:
            samples = self._read(rows, "the data set")
            self._form.check(-1, samples)  # to find an owner takes a look at everyone's lists
        except ProblemError:
            for number, row in zip(wanted, rows, strict=True):  # whose it was
                self._form.check(self.owner(number), self._read([row], f"client {self.owner(number)}"))
            raise
        if self._look is not None:
            self._look(samples, lambda row: f"Client {self.owner(wanted[row])}")
        inputs, targets = (
            values.view(*numbers.shape, *values.shape[1:]) for values in (samples.inputs, samples.targets)
        )
        return Samples(inputs, targets, samples.packing)

    def _fetched(self, numbers: Sequence[int], seeds: Sequence[int]) -> list[Any]:
        """Samples one by one, with torch's, NumPy's and Python's own generators seeded for each of them."""
        state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - what data sets use
        try:
            with torch.random.fork_rng(devices=[]):
                rows = []
                for number, seed in zip(numbers, seeds, strict=False):
                    torch.manual_seed(seed % 2**63)
                    np.random.seed(seed % 2**32)  # noqa: NPY002
                    random.seed(seed)
                    rows.append(self._fetch(number))
                return rows
        finally:
            random.setstate(state)
            np.random.set_state(numpy_state)  # noqa: NPY002

    def _fetch(self, number: int) -> Any:
        try:
            return self.dataset[number]
        except Exception as error:
            said = str(error) or type(error).__name__
            raise ProblemError(f"The data of client {self.owner(number)} cannot be read: {said}") from error

    @property
    def device(self) -> torch.device:
        """Where the lists are."""
        return self.order.device

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> ClientData:  # type: ignore[override]
        """The same data set, whose samples are moved as they are fetched."""
        return ClientData.to(self, device, dtype)

    def checked(self, look: Look) -> ClientData:
        """The same, with a look at every sample that is fetched; the first ones are looked at now."""
        look(self.pool, lambda row: "Client 0")
        return self._other(look=look)

    def converted(self, convert: Convert) -> ClientData:
        """The same, with samples that are changed as they are fetched."""
        return self._other(convert=convert)

    def read_by(self, reading: Reading) -> ClientData:
        """The same, with samples that are read otherwise."""
        return self._other(reading=reading)

    def distinct_targets(self) -> Tensor | None:
        """Not known before all samples were fetched."""
        return None

    def identity(self) -> list[Tensor]:
        """A few samples, and whose they are."""
        return [self.sizes, self.order, self.pool.inputs, self.pool.targets]

    def _other(self, **changes: Any) -> DatasetData:
        options = {"look": self._look, "convert": self._convert, "reading": self._reading, **changes}
        return DatasetData(self.dataset, self.order, self.sizes, **options)


def from_dataset(dataset: Any, indices: Sequence[Any] | Tensor) -> ClientData:
    """Clients of a map-style data set of (input, target) pairs, such as torchvision's; nothing is copied.

    `dataset[i]` is called for every sample that is drawn, each time that it is.  So a transform is applied anew.  What
    it draws from the generators of torch, NumPy and Python (not from one of its own) repeats with the run.

    Args:
        dataset: With `__len__` and `__getitem__`.
        indices: For each client the numbers of its samples; for many clients of one size a table (N, size).

    >>> from torch.utils.data import TensorDataset
    >>> dataset = TensorDataset(torch.arange(6.0).view(6, 1), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> from_dataset(dataset, indices=[[0, 1, 2], [5, 3]]).samples(1).targets.tolist()
    [1, 1]
    """
    if not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")):
        raise ProblemError(f"The data set is {type(dataset).__name__}; it must be map-style: len(dataset), dataset[i].")
    return DatasetData(dataset, *read_indices(indices, len(dataset)))
