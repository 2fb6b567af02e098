"""Clients of a Hugging Face data set: rows with the same value in a column are one client's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcef.core.errors import DataError
from fedcef.problems.client_data import ClientData
from fedcef.problems.clients.columns import Names, Transform, listed, read_columns
from fedcef.problems.clients.loaded import CACHE, LoadedData


def from_hugging_face(
    dataset: Any,
    client: str,
    inputs: Names,
    targets: Names,
    *,
    transform: Transform | None = None,
    cache: int | str = CACHE,
) -> ClientData:
    """Clients of a `datasets.Dataset`; a client's rows are read when a round needs them.

    Clients are numbered in the order of their ids.  Only the column of ids is read at once; 8 bytes a row and 16 a
    client are kept.

    Args:
        dataset: One split of a data set, whose rows are at hand by number (not a stream).
        client: The column with the ids of the clients, numbers or words.
        inputs: The column of the inputs.  Several columns of numbers make one vector for each sample.
        targets: Likewise.
        transform: transform(inputs, targets) returns what is used in place of these tensors of a client's samples, such
            as pictures divided by 255.
        cache: How many bytes are kept of what was read; a cohort should fit into half of it.

    >>> rows = datasets.Dataset.from_dict({"user": ["b", "a", "b"], "x": [[1.0], [2.0], [3.0]], "y": [0, 1, 1]})
    >>> data = from_hugging_face(rows, client="user", inputs="x", targets="y")
    >>> data.sizes.tolist(), data.samples(1).inputs.flatten().tolist()
    ([1, 2], [1.0, 3.0])
    """
    there = getattr(dataset, "column_names", None)
    if not isinstance(there, list) or not hasattr(dataset, "__getitem__"):
        raise DataError(
            f"{type(dataset).__name__} is no datasets.Dataset; choose a split, and load it without streaming."
        )
    for name in (client, *listed(inputs), *listed(targets)):
        if name not in there:
            raise DataError(f"The data set has no column {name}; it has {', '.join(there)}.")
    _, owners, held = np.unique(np.asarray(dataset[client][:]), return_inverse=True, return_counts=True)
    order = np.argsort(owners.reshape(-1), kind="stable")
    sizes = torch.from_numpy(held)
    starts = np.cumsum(held) - held

    def read(number: int) -> tuple[Tensor, Tensor]:
        rows = order[starts[number] : starts[number] + held[number]]
        return read_columns(dataset[rows.tolist()], number, inputs, targets, transform)

    return LoadedData(read, len(held), sizes, cache)
