"""Whose samples are whose: from the arguments of `fit` to one table per client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Pooled:
    """All clients' samples one after the other, and where each client's begin and end."""

    X: Any
    y: Any
    sample_weight: Any
    clients: Array | None
    """Every sample's client, as the user calls it; None = there is only one."""


def pooled(X: Any, y: Any, sample_weight: Any, clients: Any) -> Pooled:
    """The arguments of `fit` as one table.  Lists of tables are those of the clients, in their order."""
    if not _is_list_of_tables(X):
        return Pooled(X, y, sample_weight, None if clients is None else np.asarray(clients))
    if clients is not None:
        raise ValueError(
            "clients= says whose the rows of one table are; X is already a list with one table per client."
        )
    if not isinstance(y, Sequence) or len(y) != len(X):
        raise ValueError(f"X has the tables of {len(X)} clients; y must be a list of as many arrays, one per client.")
    tables, targets = [np.asarray(table) for table in X], [np.asarray(values) for values in y]
    for i, (table, values) in enumerate(zip(tables, targets, strict=True)):
        if table.ndim != 2 or table.shape[1] != tables[0].shape[1]:
            raise ValueError(
                f"Client {i}'s table has the shape {table.shape}; it must have {tables[0].shape[1]} columns as client "
                "0's has."
            )
        if len(table) != len(values):
            raise ValueError(f"Client {i} has {len(table)} samples but {len(values)} targets.")
    if sample_weight is not None:
        sample_weight = np.concatenate([np.asarray(weights) for weights in sample_weight])
    names = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    return Pooled(np.concatenate(tables), np.concatenate(targets), sample_weight, names)


def rows_of_clients(clients: Array | None, count: int) -> list[Array]:
    """The rows of every client that has any, in the order of their names."""
    if clients is None:
        return [np.arange(count)]
    if clients.shape != (count,):
        raise ValueError(f"clients has the shape {clients.shape}; it must name the client of each of {count} samples.")
    _, number = np.unique(clients, return_inverse=True)
    order = np.argsort(number, kind="stable")
    return np.split(order, np.cumsum(np.bincount(number))[:-1])


def _is_list_of_tables(X: Any) -> bool:
    return isinstance(X, list | tuple) and len(X) > 0 and np.ndim(X[0]) == 2
