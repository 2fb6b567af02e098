"""File formats of data sets: bytes in, arrays out; damaged files are refused with a sentence."""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from fedcef.core.errors import DataError

Bytes = NDArray[np.uint8]


def parse_idx(content: bytes, file: str, shape: tuple[int, ...]) -> Bytes:
    """An idx file of unsigned bytes: (count, *shape)."""
    dims = 1 + len(shape)
    header = 4 * (1 + dims)
    if len(content) < header:
        raise DataError(f"{file} ends within its header: {len(content)} of {header} bytes.")
    if content[:4] != bytes([0, 0, 8, dims]):
        raise DataError(f"{file} is not an idx file of {dims}-dimensional bytes: it starts with {content[:4].hex()}.")
    found: tuple[int, ...] = struct.unpack_from(f">{dims}I", content, 4)
    if found[1:] != shape:
        raise DataError(f"{file} holds items of shape {found[1:]} instead of {shape}.")
    if len(content) != header + math.prod(found):
        announced = header + math.prod(found)
        raise DataError(f"{file} should have {announced:,} bytes by its header, but has {len(content):,}.")
    return np.frombuffer(content, np.uint8, offset=header).reshape(found)


def write_idx(items: bytes, count: int, shape: tuple[int, ...]) -> bytes:
    """The inverse of `parse_idx`."""
    return struct.pack(f">BBBB{1 + len(shape)}I", 0, 0, 8, 1 + len(shape), count, *shape) + items


def csv_to_idx(table: bytes, shape: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Lines of `label, pixel, pixel, …` under a header line, as the idx files of images and labels."""
    rows = [bytes(map(int, line.split(b","))) for line in table.splitlines()[1:]]  # refuses what is not 0..255
    images = b"".join(row[1:] for row in rows)
    labels = b"".join(row[:1] for row in rows)
    return write_idx(images, len(rows), shape), write_idx(labels, len(rows), ())


def parse_cifar(content: bytes, file: str) -> tuple[Bytes, Bytes]:
    """A batch of CIFAR-10's binary version: images (count, 3, 32, 32) and labels (count,)."""
    record = 1 + 3 * 32 * 32
    if not content or len(content) % record:
        raise DataError(f"{file} has {len(content):,} bytes, which is not a whole number of {record}-byte records.")
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def parse_libsvm(content: bytes, file: str, features: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Lines of `label index:value index:value …`, label -1 or +1, indices from 1 and rising: a dense table, labels 0/1.

    What a line does not name is 0.  Empty lines are skipped.
    """
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    labels: list[int] = []
    for number, line in enumerate(content.splitlines(), start=1):
        label, *entries = line.split() or [b""]
        if not label:
            continue
        if label not in _LIBSVM_LABELS:
            raise DataError(f"{file}, line {number}: the label is {label.decode(errors='replace')}, not -1 or +1.")
        before = 0
        for entry in entries:
            index_text, _, value_text = entry.partition(b":")
            try:
                index, value = int(index_text), float(value_text)
            except ValueError:
                shown = entry.decode(errors="replace")
                raise DataError(f"{file}, line {number}: '{shown}' is not index:value.") from None
            if not before < index <= features:
                raise DataError(f"{file}, line {number}: index {index} is not in {before + 1} to {features}.")
            if not math.isfinite(value):
                raise DataError(f"{file}, line {number}: the value of {index} is {value}.")
            rows.append(len(labels))
            columns.append(index - 1)
            values.append(value)
            before = index
        labels.append(_LIBSVM_LABELS[label])
    table = np.zeros((len(labels), features), np.float32)
    table[rows, columns] = values
    return table, np.array(labels, np.int64)


_LIBSVM_LABELS = {b"-1": 0, b"+1": 1, b"1": 1}
