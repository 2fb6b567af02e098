"""Columns of a table as tensors: numbers, lists, arrays, tensors or pictures, one for each sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcef.core.errors import DataError
from fedcef.problems.arrays import to_column, to_tensor

Transform = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""transform(inputs, targets): what is done to a client's samples after they are read."""

Names = str | Sequence[str]
"""A column, or several columns of numbers that make one vector for each sample."""


def listed(names: Names) -> list[str]:
    """The names of the columns."""
    return [names] if isinstance(names, str) else list(names)


def read_columns(
    table: Mapping[str, Any], client: int, inputs: Names, targets: Names, transform: Transform | None
) -> tuple[Tensor, Tensor]:
    """A client's inputs and targets from its table, by the names of columns; targets may be words."""
    found = _vectors(table, inputs, f"The inputs of client {client}", to_tensor)
    labels = _vectors(table, targets, f"The targets of client {client}", to_column)
    return (found, labels) if transform is None else transform(found, labels)


def _vectors(table: Mapping[str, Any], names: Names, what: str, read: Callable[[Any, str], Any]) -> Any:
    for name in listed(names):
        if name not in table:
            raise DataError(f"there is no column {name}; there are {', '.join(map(str, table))}.")
    columns = [read(_array(table[name]), what) for name in listed(names)]
    return columns[0] if isinstance(names, str) else torch.stack(columns, -1)


def _array(column: Any) -> Any:
    """A tensor or an array that may be written to; Python's floats become torch's usual ones, as by `torch.tensor`."""
    if isinstance(column, Tensor):
        return column
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column if column.flags.writeable else column.copy()
    rows = list(column)
    if rows and isinstance(rows[0], Tensor):
        return torch.stack(rows)
    if rows and isinstance(rows[0], np.ndarray):
        return np.stack([_array(row) for row in rows])
    array = (
        np.stack([np.asarray(row) for row in rows])
        if rows and hasattr(rows[0], "__array_interface__")
        else np.array(rows)
    )
    usual = array.dtype == np.float64
    return torch.tensor(array, dtype=torch.get_default_dtype()) if usual else array
