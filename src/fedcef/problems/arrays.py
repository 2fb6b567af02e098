"""Arrays, lists, and tables of pandas and its like, as tensors; or as arrays, where they hold words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcef.core.errors import ProblemError
from fedcef.problems.labels import Column, are_words

UNEQUAL = "; where they differ in length, give a collate function, such as fedcef.pad_to(80)"
"""What to do with sequences."""


def is_table(values: Any) -> bool:
    """A tensor, an array, or a table or column of pandas and its like."""
    return isinstance(values, Tensor | np.ndarray) or hasattr(values, "to_numpy")


def listed(values: Any) -> Any:
    """A column of a Hugging Face data set, and any other sequence, as a list or a table; all else as it is."""
    if not isinstance(values, Sequence) or isinstance(values, list | tuple | str | bytes) or is_table(values):
        return values
    try:
        whole: Any = values[:]
    except (TypeError, KeyError, ValueError):  # a deque, say, has no slices
        return list(values)
    return whole if isinstance(whole, list) or is_table(whole) else list(values)


def stacked(values: list[Any]) -> Tensor:
    """Tensors, arrays or numbers of one shape, one for each sample, as a table."""
    return torch.stack([torch.as_tensor(value) for value in values])


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
        if values.layout != torch.strided:
            raise ProblemError(f"{what} are a sparse tensor; make it dense by to_dense().")
        return values
    try:
        if isinstance(values, list) and values and isinstance(values[0], Tensor | np.ndarray):
            return stacked(values)
        array = _numbers(values) if hasattr(values, "to_numpy") else _unboxed(np.asarray(values))
        if are_words(array):
            return array
        if isinstance(values, list):
            return torch.as_tensor(values)  # Python's numbers have torch's usual type
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        return torch.as_tensor(native if native.flags.writeable else native.copy())
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProblemError(
            f"{what} cannot be made a tensor: {error}{UNEQUAL if isinstance(values, list) else ''}"
        ) from error


def _numbers(table: Any) -> Column:
    """A table or column of pandas as an array; of numbers, even if its columns are of several types."""
    array: Column = table.to_numpy()
    if getattr(table, "columns", None) is None:
        array = _unboxed(array)
    if array.dtype.kind != "O":
        return array
    try:
        whole: Column = table.astype("float64").to_numpy()
    except (TypeError, ValueError):
        return array
    return whole if getattr(table, "columns", None) is not None or not _holds_words(array) else array


def _unboxed(array: Column) -> Column:
    """Numbers that lie in an array of objects as an array of numbers; whole numbers stay whole."""
    if array.dtype.kind != "O":
        return array
    try:
        plain = np.asarray(array.tolist())
    except ValueError:  # lists of several lengths
        return array
    return plain if plain.dtype.kind in "biuf" else array


def _holds_words(array: Column) -> bool:
    return any(isinstance(value, str | bytes) for value in array.reshape(-1)[:100].tolist())


def _is_numeric(column: Any) -> bool:
    try:
        column.astype("float64")
    except (TypeError, ValueError):
        return False
    return True
