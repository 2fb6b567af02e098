"""From what users have, arrays, tables or data sets, to a table of samples that has been looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcef.core.errors import ProblemError
from fedcef.problems.client_data import ClientData, PooledData, Samples
from fedcef.problems.labels import Column, Labels, are_words


class Raw(NamedTuple):
    """Inputs, and targets that may be words still."""

    inputs: Tensor
    targets: Tensor | Column
    whose: str

    def samples(self, labels: Labels | None) -> Samples:
        """With words as the numbers of their classes; named classes stand for numbers, too."""
        what = f"The targets of {self.whose}"
        if labels is not None and (labels.given or are_words(self.targets)):
            return Samples(self.inputs, labels.encode(self.targets, what))
        if not isinstance(self.targets, Tensor):
            raise ProblemError(
                f"{what} are words or other objects, such as {self.targets.flat[:1].tolist()[0]!r}; name the classes "
                "in their order, Problem.build(…, classes=[…]), or give numbers."
            )
        return Samples(self.inputs, self.targets)


def read_samples(data: Any, whose: str, labels: Labels | None = None) -> Samples:
    """A pair of arrays, or a map-style data set of (input, target) pairs, as one table; `whose` is for messages."""
    samples = take_apart(data, whose).samples(labels)
    check_finite(samples, whose)
    return samples


class AllData(NamedTuple):
    """What a problem is built from."""

    clients: ClientData
    test: Samples | None
    validation: Samples | None
    labels: Labels | None
    """The classes, where labels are words or classes are named."""
    client_ids: tuple[Any, ...]
    """Of whom there is a number, where rows of a table name them."""


def read_all(clients: Any, test: Any, validation: Any, classes: Iterable[Any] | None, client_ids: Any) -> AllData:
    """The clients, the test set and the validation set, as `Problem.build` takes them.

    Where labels are words, their classes are those that occur in any of them, unless they are named or a source of
    clients has its own.
    """
    names = ("the test set", "the validation set")
    held = [
        None if data is None else take_apart(data, name) for data, name in zip((test, validation), names, strict=True)
    ]
    source = clients if isinstance(clients, ClientData) else None
    if client_ids is not None:
        if source is not None:
            raise ProblemError("client_ids are for one table of all clients' samples; this source knows its clients.")
        raws = [take_apart(clients, "the clients")]
    else:
        if isinstance(clients, tuple) and _is_pair(clients):
            raise ProblemError(
                "The clients are one pair of tables; say whose each row is by client_ids=…, or give a list with one "
                "pair for each client."
            )
        raws = [] if source is not None else [take_apart(one, f"client {i}") for i, one in enumerate(clients)]
    columns = [raw.targets for raw in (*raws, *held) if raw is not None]
    labels = Labels.named(classes) if classes is not None else None
    if labels is None and source is not None and source.classes:
        labels = Labels(source.classes)
    elif labels is None and any(map(are_words, columns)):
        labels = Labels.found(columns)
    tests = [None if raw is None else raw.samples(labels) for raw in held]
    for samples, name in zip(tests, names, strict=True):
        if samples is not None:
            check_finite(samples, name)
    ids: tuple[Any, ...] = ()
    if client_ids is not None:
        ids, rows, sizes = by_client(client_ids, len(raws[0].inputs))
        source = PooledData.cut(raws[0].samples(labels)[rows], sizes)
        check_finite(source.table, "the clients")
    elif raws:
        source = read_clients(raws, labels)
    elif source is None or not source.num_clients:
        assert tests[0] is not None, "a problem has clients or a test set"
        source = PooledData.empty(tests[0], 0)
    elif classes is not None and labels is not None:
        source = source.labelled(labels)
    return AllData(source, tests[0], tests[1], labels, ids)


def take_apart(data: Any, whose: str) -> Raw:
    """The inputs and targets of a client, or of a test set, in any of the forms that they may have."""
    if isinstance(data, Samples):
        raw = Raw(data.inputs, data.targets, whose)
    elif _is_pair(data):
        raw = Raw(to_tensor(data[0], f"The inputs of {whose}"), to_column(data[1], f"The targets of {whose}"), whose)
    elif isinstance(data, Sized) and hasattr(data, "__getitem__") and not hasattr(data, "to_numpy"):
        raw = take_rows_apart(data, whose)
    else:
        raise ProblemError(
            f"The data of {whose} must be an (inputs, targets) pair of tensors or a map-style data set, "
            f"not {type(data).__name__}."
        )
    if len(raw.inputs) != len(raw.targets):
        raise ProblemError(f"The data of {whose} has {len(raw.inputs)} inputs but {len(raw.targets)} targets.")
    if len(raw.inputs) == 0:
        raise ProblemError(f"The data of {whose} is empty; leave the client out or give it samples.")
    return raw


def take_rows_apart(data: Any, whose: str) -> Raw:
    """The same of samples that are fetched one by one."""
    try:
        rows = [data[i] for i in range(len(data))]
        inputs, targets = [row[0] for row in rows], [row[1] for row in rows]
        if not rows:
            return Raw(torch.empty(0), torch.empty(0), whose)
        words = isinstance(targets[0], str | bytes) or not hasattr(targets[0], "__len__")
        column = to_column(targets, f"The targets of {whose}") if words else _stacked(targets)
        return Raw(_stacked(inputs), column, whose)
    except ProblemError:
        raise
    except Exception as error:
        raise ProblemError(f"The samples of {whose} do not make a table of inputs and targets: {error}") from error


def _stacked(values: list[Any]) -> Tensor:
    return torch.stack([torch.as_tensor(value) for value in values])


def check_finite(samples: Samples, whose: str) -> None:
    """Refuse NaN and infinite values."""
    for what, values in (("inputs", samples.inputs), ("targets", samples.targets)):
        if not _is_finite(values):
            bad = (~values.reshape(len(values), -1).isfinite()).any(-1).sum()
            raise ProblemError(
                f"The {what} of {whose} have NaN or infinite values in {int(bad)} of {len(samples)} samples; "
                "leave these samples out or fill them in."
            )


def _is_finite(values: Tensor) -> bool:
    return not values.is_floating_point() or bool(values.sum(dtype=torch.float64).isfinite())


def read_clients(clients: Iterable[Raw], labels: Labels | None = None) -> PooledData:
    """Each client's data in one table; at least one client."""
    shards = [raw.samples(labels) for raw in clients]
    form = Form.of(0, shards[0])
    for i, shard in enumerate(shards):
        form.check_shapes(i, shard)
    pooled = PooledData.of(shards)
    if not (_is_finite(pooled.table.inputs) and _is_finite(pooled.table.targets)):
        for i, shard in enumerate(shards):
            check_finite(shard, f"client {i}")
    return pooled


def by_client(client_ids: Any, count: int) -> tuple[tuple[Any, ...], Tensor, Tensor]:
    """The clients' ids in ascending order, the rows of a table client by client (n,), and how many each has (N,)."""
    column = to_column(client_ids, "client_ids")
    if column.ndim != 1 or len(column) != count:
        raise ProblemError(
            f"client_ids must say whose each of the {count} samples is; they have the shape {tuple(column.shape)}."
        )
    if isinstance(column, Tensor) and column.is_floating_point():
        raise ProblemError(f"client_ids must be whole numbers or words, not {column.dtype}; a number may be missing.")
    owners = Labels.found([column])
    numbers = owners.encode(column, "client_ids")
    return owners.classes, numbers.argsort(stable=True), numbers.bincount(minlength=len(owners.classes))


@dataclass(frozen=True)
class Form:
    """What all clients' samples look like, by the first one that was read."""

    client: int
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[torch.dtype, torch.dtype]

    @classmethod
    def of(cls, client: int, samples: Samples) -> Form:
        """As this client's are."""
        return cls(client, samples.shapes, samples.dtypes)

    def check_shapes(self, client: int, samples: Samples) -> None:
        """Refuse samples of other shapes."""
        if samples.shapes != self.shapes:
            raise ProblemError(
                f"The data of client {client} does not fit client {self.client}'s: a sample's input and target have "
                f"the shapes {samples.shapes}, not {self.shapes}."
            )

    def check(self, client: int, samples: Samples) -> None:
        """Refuse samples of other shapes or types."""
        self.check_shapes(client, samples)
        if samples.dtypes != self.dtypes:
            mine, others = (
                " and ".join(str(d).removeprefix("torch.") for d in x) for x in (samples.dtypes, self.dtypes)
            )
            raise ProblemError(
                f"The data of client {client} does not fit client {self.client}'s: inputs and targets are {mine}, not "
                f"{others}."
            )


def _is_table(values: Any) -> bool:
    """A tensor, an array, or a table or column of pandas and its like."""
    return isinstance(values, Tensor | np.ndarray) or hasattr(values, "to_numpy")


def _is_pair(data: Any) -> bool:
    """Two tables; either may be a list, as long as the other.  A list of two lists is one of two samples."""
    if not (isinstance(data, tuple | list) and len(data) == 2):
        return False
    inputs, targets = data
    if _is_table(inputs):
        return _is_table(targets) or (isinstance(targets, list) and len(targets) == len(inputs))
    return isinstance(data, tuple) and isinstance(inputs, list) and (isinstance(targets, list) or _is_table(targets))


def to_tensor(values: Any, what: str) -> Tensor:
    """Numbers as a tensor; `what` is for messages."""
    found = to_column(values, what)
    if isinstance(found, Tensor):
        return found
    columns = getattr(values, "columns", None)
    if columns is None:
        raise ProblemError(f"{what} are words or other objects, such as {found.flat[:1].tolist()[0]!r}; give numbers.")
    words = [str(name) for name in columns if not _is_numeric(values[name])]
    raise ProblemError(
        f"{what} have columns that are no numbers ({', '.join(words)}); make numbers of them, as pandas.get_dummies "
        "does, or leave them out."
    )


def to_column(values: Any, what: str) -> Tensor | Column:
    """Numbers as a tensor, words and other objects as an array of them."""
    if isinstance(values, Tensor):
        return values
    try:
        if isinstance(values, list) and values and isinstance(values[0], Tensor | np.ndarray):
            return _stacked(values)
        array = _numbers(values) if hasattr(values, "to_numpy") else np.asarray(values)
        if are_words(array):
            return array
        if isinstance(values, list):
            return torch.as_tensor(values)  # Python's numbers have torch's usual type
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        return torch.as_tensor(native if native.flags.writeable else native.copy())
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProblemError(f"{what} cannot be made a tensor: {error}") from error


def _numbers(table: Any) -> Column:
    """A table or column of pandas as an array; of numbers, even if its columns are of several types."""
    array: Column = table.to_numpy()
    if array.dtype.kind != "O":
        return array
    try:
        whole: Column = table.astype("float64").to_numpy()
    except (TypeError, ValueError):
        return array
    return whole if getattr(table, "columns", None) is not None or not _holds_words(array) else array


def _holds_words(array: Column) -> bool:
    return any(isinstance(value, str | bytes) for value in array.reshape(-1)[:100].tolist())


def _is_numeric(column: Any) -> bool:
    try:
        column.astype("float64")
    except (TypeError, ValueError):
        return False
    return True
