"""Whose samples are whose: from the arguments of `fit` to one table per client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

Array = NDArray[Any]


@dataclass(frozen=True)
class Pooled:
    """All clients' samples one after the other, and where each client's begin and end."""

    X: Any
    y: Any
    sample_weight: Any
    clients: Array | None
    """Every sample's client, as the user calls it; None = there is only one."""
    named: Any = None
    """A client's table as it was given, with the names of its columns, where there is one for each."""


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
    first = _columns(X[0])
    for i, table in enumerate(X):
        if _columns(table) != first:
            raise ValueError(
                f"Client {i}'s columns are {_columns(table)} and client 0's {first}; all tables must have the same "
                "columns in the same order."
            )
    sparse = [issparse(table) for table in X]
    if any(sparse) and not all(sparse):
        raise ValueError(
            f"Client {sparse.index(False)}'s table is dense and client {sparse.index(True)}'s is sparse; give all of "
            "them alike."
        )
    tables = list(X) if all(sparse) else [np.asarray(table) for table in X]
    targets = [np.asarray(values) for values in y]
    for i, (table, values) in enumerate(zip(tables, targets, strict=True)):
        if table.ndim != 2 or table.shape[1] != tables[0].shape[1]:
            raise ValueError(
                f"Client {i}'s table has the shape {table.shape}; it must have {tables[0].shape[1]} columns as client "
                "0's has."
            )
        if table.shape[0] != len(values):
            raise ValueError(f"Client {i} has {table.shape[0]} samples but {len(values)} targets.")
    if sample_weight is not None:
        sample_weight = np.concatenate([np.asarray(weights) for weights in sample_weight])
    names = np.repeat(np.arange(len(tables)), [table.shape[0] for table in tables])
    together = vstack(tables, format="csr") if all(sparse) else np.concatenate(tables)
    return Pooled(together, np.concatenate(targets), sample_weight, names, X[0])


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
    return isinstance(X, list | tuple) and len(X) > 0 and (issparse(X[0]) or np.ndim(X[0]) == 2)


def _columns(table: Any) -> list[Any] | None:
    """The names of a data frame's columns; None for an array."""
    return list(table.columns) if hasattr(table, "columns") else None
