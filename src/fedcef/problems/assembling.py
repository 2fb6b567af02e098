"""All that a problem's samples come from: clients, test set and validation set, read alike."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from fedcef.core.errors import ProblemError
from fedcef.problems.arrays import listed
from fedcef.problems.client_data import ClientData, PooledData, Samples
from fedcef.problems.clients.dataset import DatasetData
from fedcef.problems.labels import Labels, are_words
from fedcef.problems.reading import Collate, Raw, Reading, by_client, check_finite, is_pair, read_clients, take_apart

_HELD_OUT = ("the test set", "the validation set")


class AllData(NamedTuple):
    """What a problem is built from."""

    clients: ClientData
    test: Samples | None
    validation: Samples | None
    labels: Labels | None
    """The classes, where labels are words or classes are named."""
    client_ids: tuple[Any, ...]
    """Of whom there is a number, where rows of a table name them."""
    notes: tuple[str, ...]


def read_all(
    clients: Any,
    held_out: Sequence[Any],
    classes: Iterable[Any] | None = None,
    client_ids: Any = None,
    collate: Collate | None = None,
    live: bool | None = None,
) -> AllData:
    """The clients, and the test and the validation set, as `Problem.build` takes them.

    Where labels are words, their classes are those that occur in any of them, unless they are named or a source of
    clients has its own.
    """
    held = [None if d is None else take_apart(d, n, collate) for d, n in zip(held_out, _HELD_OUT, strict=True)]
    ids, raws, source = _clients(clients, client_ids, collate, live)
    columns = [raw.targets for raw in (*raws, *held) if raw is not None]
    labels = Labels.named(classes) if classes is not None else None
    if labels is None and source is not None and source.classes:
        labels = Labels(source.classes)
    elif labels is None and any(map(are_words, columns)):
        labels = Labels.found(_alike([raw for raw in (*raws, *held) if raw is not None]))
    tests = [None if raw is None else raw.samples(labels) for raw in held]
    for samples, name in zip(tests, _HELD_OUT, strict=True):
        if samples is not None:
            check_finite(samples, name)
    notes: tuple[str, ...] = ()
    if raws:
        data: ClientData = _table(raws, ids, labels)
    elif source is None or not source.num_clients:
        assert tests[0] is not None, "a problem has clients or a test set"
        data = PooledData.empty(tests[0], 0)
    else:
        if source is not clients and live is None:
            notes = (_RUN_FOR_EACH_DRAW.format(_live_kind(clients)),)
        data = source.read_by(Reading(labels, collate)) if (classes is not None or collate) else source
    return AllData(data, tests[0], tests[1], labels, ids[0] if ids else (), notes)


def _alike(raws: Sequence[Raw]) -> list[Any]:
    """The labels of all, where all are words: which number stands for which word cannot be guessed."""
    words = next(raw.whose for raw in raws if are_words(raw.targets))
    if numbers := next((raw.whose for raw in raws if not are_words(raw.targets)), ""):
        raise ProblemError(f"The labels of {words} are words, and those of {numbers} are numbers; give all as words.")
    return [raw.targets for raw in raws]


_Ids = tuple[tuple[Any, ...], Tensor, Tensor]

_RUN_FOR_EACH_DRAW = (
    "Samples of {} are fetched anew by its __getitem__ whenever they are drawn, with its transforms; live=False copies "
    "them once."
)


def _clients(
    clients: Any, client_ids: Any, collate: Collate | None, live: bool | None
) -> tuple[_Ids | None, list[Raw], ClientData | None]:
    """Whose the rows of one table are, the clients' data that are copied, or a source of them."""
    if isinstance(clients, ClientData):
        if client_ids is not None:
            raise ProblemError("client_ids are for one table of all clients' samples; this source knows its clients.")
        return None, [], clients
    if client_ids is None and isinstance(clients, tuple) and is_pair(clients):
        raise ProblemError(
            "The clients are one pair of tables; say whose each row is by client_ids=…, or give a list with one pair "
            "for each client."
        )
    if isinstance(clients, tuple) and client_ids is not None:
        clients = tuple(map(listed, clients))
    if isinstance(clients, Mapping | str):
        raise ProblemError(
            f"The clients are a {type(clients).__name__}; give a list of one (inputs, targets) pair for each."
        )
    everyone = [clients] if client_ids is not None else list(clients)
    lives = any(is_live(one) for one in everyone) if live is None else live
    if not lives:
        names = ["the clients"] if client_ids is not None else [f"client {i}" for i in range(len(everyone))]
        raws = [take_apart(one, name, collate) for one, name in zip(everyone, names, strict=True)]
        return None if client_ids is None else by_client(client_ids, len(raws[0].inputs)), raws, None
    joined = Joined([_rows(one, f"client {i}") for i, one in enumerate(everyone)])
    if client_ids is not None:
        ids = by_client(client_ids, len(joined))
        return ids, [], DatasetData(joined, *ids[1:])
    sizes = torch.tensor([len(part) for part in joined.parts])
    if not int(sizes.min()):
        raise ProblemError(
            f"The data of client {int(sizes.argmin())} is empty; leave the client out or give it samples."
        )
    return None, [], DatasetData(joined, torch.arange(len(joined)), sizes)


def _table(raws: list[Raw], ids: _Ids | None, labels: Labels | None) -> PooledData:
    if ids is None:
        return read_clients(raws, labels)
    samples = raws[0].samples(labels)
    check_finite(samples, "the clients")
    return PooledData.cut(samples[ids[1]], ids[2])


def is_live(data: Any) -> bool:
    """Whether samples are to be fetched whenever they are drawn: of a data set that may compute them anew each time."""
    if isinstance(data, Subset | ConcatDataset | TensorDataset | list) and _computes(data):
        return True
    if isinstance(data, Subset):
        return is_live(data.dataset)
    if isinstance(data, ConcatDataset):
        return any(map(is_live, data.datasets))
    known = isinstance(data, tuple | list | Tensor | np.ndarray | Samples | TensorDataset | str) or hasattr(
        data, "to_numpy"
    )
    return not known and hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _computes(data: Any) -> bool:
    """Whether a kind of torch's data sets, or of lists, has a `__getitem__` of its own, with a transform perhaps."""
    known = next(kind for kind in (Subset, ConcatDataset, TensorDataset, list) if isinstance(data, kind))
    return type(data).__getitem__ is not known.__getitem__


def _live_kind(clients: Any) -> str:
    everyone = clients if isinstance(clients, tuple | list) else [clients]
    found = next(one for one in everyone if is_live(one))
    while isinstance(found, Subset) and not _computes(found):
        found = found.dataset
    return type(found).__name__


def _rows(data: Any, whose: str) -> Any:
    """Data as samples that are fetched one by one."""
    if isinstance(data, Samples) or is_pair(data):
        raw = take_apart(data, whose)
        if raw.packing is None:
            return [*zip(raw.inputs, raw.targets, strict=True)]
        parts = [*zip(*raw.packing.unpack(raw.inputs), strict=True)]
        names = raw.packing.names
        several = [dict(zip(names, one, strict=True)) for one in parts] if names else parts
        return [*zip(several, raw.targets, strict=True)]
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise ProblemError(
            f"The data of {whose} must be an (inputs, targets) pair of tensors or a map-style data set, "
            f"not {type(data).__name__}."
        )
    return data


class Joined:
    """Data sets one after the other, as one."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts
        self._ends = torch.tensor([len(part) for part in parts]).cumsum(0).tolist()

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, number: int) -> Any:
        place = bisect_right(self._ends, number)
        return self.parts[place][number - (self._ends[place - 1] if place else 0)]
