"""From what users have, arrays, tables or data sets, to a table of samples that has been looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedcef.core.errors import ProblemError
from fedcef.problems.arrays import UNEQUAL, is_table, listed, stacked, to_column, to_tensor
from fedcef.problems.client_data import PooledData, Samples
from fedcef.problems.labels import Column, Labels, are_words
from fedcef.problems.several import Packing

Collate = Callable[[list[Any]], tuple[Any, Any]]
"""collate(samples): the inputs and targets of a list of samples, always of the same shapes, as `DataLoader` has it."""


_NO_NUMBERS = "; make arrays of images and the like, by numpy.asarray or a transform such as torchvision's ToTensor"


class Raw(NamedTuple):
    """Inputs, and targets that may be words still."""

    inputs: Tensor
    targets: Tensor | Column
    whose: str
    packing: Packing | None = None
    """How several inputs of a sample lie in `inputs`."""

    def samples(self, labels: Labels | None) -> Samples:
        """With words as the numbers of their classes; named classes stand for numbers, too."""
        what = f"The targets of {self.whose}"
        if labels is not None and (labels.given or are_words(self.targets)):
            return Samples(self.inputs, labels.encode(self.targets, what), self.packing)
        if not isinstance(self.targets, Tensor):
            raise ProblemError(
                f"{what} are words or other objects, such as {self.targets.flat[:1].tolist()[0]!r}; name the classes "
                "in their order, Problem.build(…, classes=[…]), or give numbers."
            )
        return Samples(self.inputs, self.targets, self.packing)


@dataclass(frozen=True)
class Reading:
    """How data are read: the classes of words, and what makes tables of samples that are not alike."""

    labels: Labels | None = None
    collate: Collate | None = None

    def samples(self, data: Any, whose: str) -> Samples:
        """A pair of tables, or a map-style data set of (input, target) pairs, as one table; `whose` is for messages."""
        samples = take_apart(data, whose, self.collate).samples(self.labels)
        check_finite(samples, whose)
        return samples


def take_apart(data: Any, whose: str, collate: Collate | None = None) -> Raw:
    """The inputs and targets of a client, or of a test set, in any of the forms that they may have."""
    if isinstance(data, tuple | list) and len(data) == 2 and hasattr(data[0], "toarray"):
        raise ProblemError(
            f"The inputs of {whose} are a sparse matrix; make it dense by toarray(), or take an estimator such as "
            "fedcef.FederatedLogisticRegression, which leaves it sparse."
        )
    if isinstance(data, tuple):
        data = tuple(map(listed, data))
        if len(data) > 2 and collate is None and all(map(is_table, data)):
            raise ProblemError(
                f"The data of {whose} are {len(data)} tables; give a pair of inputs and targets, where a sample has "
                "several inputs ((a, b), targets)."
            )
    if isinstance(data, Samples):
        raw = Raw(data.inputs, data.targets, whose, data.packing)
    elif is_pair(data):
        raw = _of_samples([*zip(*data, strict=True)], whose, collate) if collate else _of_pair(data, whose)
    elif isinstance(data, Sized) and hasattr(data, "__getitem__") and not hasattr(data, "to_numpy"):
        try:
            rows = [data[i] for i in range(len(data))]
        except Exception as error:
            raise ProblemError(f"The samples of {whose} do not make a table of inputs and targets: {error}") from error
        raw = _of_samples(rows, whose, collate)
    else:
        advice = "; give its .dataset, since batches are drawn here" if hasattr(data, "dataset") else ""
        raise ProblemError(
            f"The data of {whose} must be an (inputs, targets) pair of tensors or a map-style data set, "
            f"not {type(data).__name__}{advice}."
        )
    if len(raw.inputs) != len(raw.targets):
        raise ProblemError(f"The data of {whose} has {len(raw.inputs)} inputs but {len(raw.targets)} targets.")
    if len(raw.inputs) == 0:
        what = "the client" if whose.startswith("client ") else "it"
        raise ProblemError(f"The data of {whose} is empty; leave {what} out or give it samples.")
    return raw


def _of_samples(rows: list[Any], whose: str, collate: Collate | None) -> Raw:
    """Samples one by one, put together by the user's function or stacked."""
    if not rows:
        return Raw(torch.empty(0), torch.empty(0), whose)
    try:
        if collate is not None:
            return _of_pair(tuple(collate(rows)), whose)
        if isinstance(rows[0], Mapping):
            raise ProblemError(
                f"A sample of {whose} is a dictionary ({', '.join(map(str, rows[0]))}); give pairs of an input and a "
                "target, or a collate function that makes them."
            )
        if isinstance(rows[0], tuple | list) and len(rows[0]) > 2:
            raise ProblemError(
                f"A sample of {whose} has {len(rows[0])} parts; give pairs of an input and a target, ((a, b), target) "
                "for several inputs, or a collate function that makes them."
            )
        inputs, targets = [row[0] for row in rows], [row[1] for row in rows]
        words = isinstance(targets[0], str | bytes) or not hasattr(targets[0], "__len__")
        column = to_column(targets, f"The targets of {whose}") if words else stacked(targets)
        if _are_several(inputs[0]):
            return _of_pair((_by_part(inputs), column), whose)
        return Raw(stacked(inputs), column, whose)
    except ProblemError:
        raise
    except Exception as error:
        advice = _NO_NUMBERS if "infer dtype" in str(error) else "" if collate else UNEQUAL
        raise ProblemError(
            f"The samples of {whose} do not make a table of inputs and targets: {error}{advice}"
        ) from error


def _of_pair(data: Any, whose: str) -> Raw:
    inputs, what = data[0], f"The inputs of {whose}"
    column = to_column(data[1], f"The targets of {whose}")
    if not _are_several(inputs):
        return Raw(to_tensor(inputs, what), column, whose)
    named = isinstance(inputs, Mapping)
    parts = {
        name: to_tensor(listed(part), what) for name, part in (sorted(inputs.items()) if named else enumerate(inputs))
    }
    lengths = [len(part) for part in parts.values()]
    if len(set(lengths)) != 1:
        raise ProblemError(f"{what} are of {', '.join(map(str, lengths))} samples; all parts must have as many.")
    for part in parts.values():
        check_finite(Samples(part, torch.zeros(len(part))), whose)
    several: Any = parts if named else list(parts.values())
    packing = Packing.of(several)
    return Raw(packing.pack(several), column, whose, packing)


def _are_several(inputs: Any) -> bool:
    """Whether these are a tuple or a dictionary of several inputs; a tuple of plain numbers is a vector."""
    if isinstance(inputs, Mapping):
        return bool(inputs)
    return isinstance(inputs, tuple) and len(inputs) > 1 and any(is_table(part) for part in inputs)


def _by_part(inputs: list[Any]) -> Any:
    """Several inputs of every sample as tables of each of them."""
    if isinstance(inputs[0], Mapping):
        return {name: stacked([one[name] for one in inputs]) for name in inputs[0]}
    return tuple(stacked([one[place] for one in inputs]) for place in range(len(inputs[0])))


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


def is_pair(data: Any) -> bool:
    """Two tables; either may be a list, as long as the other.  A list of two lists is one of two samples."""
    if not (isinstance(data, tuple | list) and len(data) == 2):
        return False
    inputs, targets = data
    if is_table(inputs):
        return is_table(targets) or (
            isinstance(targets, list) and (isinstance(data, tuple) or len(targets) == len(inputs))
        )
    several = isinstance(inputs, list) or _are_several(inputs)
    return isinstance(data, tuple) and several and (isinstance(targets, list) or is_table(targets))


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
    packing: Packing | None = None

    @classmethod
    def of(cls, client: int, samples: Samples) -> Form:
        """As this client's are."""
        return cls(client, samples.shapes, samples.dtypes, samples.packing)

    def check_shapes(self, client: int, samples: Samples) -> None:
        """Refuse samples of other shapes."""
        if samples.packing != self.packing:
            raise ProblemError(
                f"The data of client {client} does not fit client {self.client}'s: a sample's inputs are "
                f"{samples.packing}, not {self.packing}."
            )
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
