"""The arrays of a model as two things: one long vector, which is compressed, and the others, which travel as they are.

Floating-point arrays make up the vector, in their order.  Integers, booleans, complex numbers and arrays of at most
`SMALL` entries are left as they are: a counter must not be rounded, and a handful of numbers is not worth an index.

Vectors are looked at piece by piece, `PIECE` entries at a time, so that what is computed on the way does not grow
with the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.wire import WireError

SMALL = 64
"""Arrays of at most so many entries travel as they are."""
PIECE = 2**23
"""Entries that are compressed at once; a model of more is compressed in pieces, each of which keeps its share."""
MOST_ENTRIES = 2**36
"""A description of more is not believed."""

Arrays = Mapping[str, NDArray[Any]]
"""A model by the names of its arrays."""

FLOATS = ("float16", "float32", "float64")
"""Types that are compressed."""


@dataclass(frozen=True)
class Layout:
    """Names, types and shapes of a model's arrays."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, arrays: Arrays) -> Layout:
        """The layout of these arrays."""
        values = arrays.values()
        return cls(tuple(arrays), tuple(str(a.dtype) for a in values), tuple(tuple(a.shape) for a in values))

    @classmethod
    def from_json(cls, entries: Any) -> Layout:
        """What `to_json` wrote; a `WireError` for anything else."""
        try:
            names = tuple(str(name) for name, _, _ in entries)
            types = tuple(np.dtype(kind).name for _, kind, _ in entries)
            shapes = tuple(tuple(int(n) for n in shape) for _, _, shape in entries)
        except (TypeError, ValueError) as error:
            raise WireError(f"The description of the arrays cannot be read: {error}.") from None
        plain = all(np.dtype(kind).kind in "biufc" for kind in types) and len(set(names)) == len(names)
        sizes = [math.prod(shape) for shape in shapes]
        if not plain or any(n < 0 for shape in shapes for n in shape) or sum(sizes) > MOST_ENTRIES:
            raise WireError("The description of the arrays names types or sizes that no model has.")
        return cls(names, types, shapes)

    def to_json(self) -> list[Any]:
        """As JSON can hold it."""
        return [list(entry) for entry in zip(self.names, self.types, map(list, self.shapes), strict=True)]

    def fits(self, arrays: Arrays) -> bool:
        """Whether these are the same arrays by name and shape, floating-point where it matters."""
        same = tuple(arrays) == self.names and tuple(a.shape for a in arrays.values()) == self.shapes
        return same and all(arrays[name].dtype.name in FLOATS for name in self.coded)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many entries each array has."""
        return {name: math.prod(shape) for name, shape in zip(self.names, self.shapes, strict=True)}

    @cached_property
    def coded(self) -> tuple[str, ...]:
        """The arrays that make up the vector."""
        pairs = zip(self.names, self.types, strict=True)
        return tuple(name for name, kind in pairs if kind in FLOATS and self.sizes[name] > SMALL)

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """The arrays that travel as they are."""
        return tuple(name for name in self.names if name not in set(self.coded))

    @cached_property
    def dim(self) -> int:
        """The length of the vector."""
        return sum(self.sizes[name] for name in self.coded)

    @cached_property
    def pieces(self) -> tuple[tuple[int, int], ...]:
        """Where the pieces of the vector begin and end."""
        return tuple((start, min(start + PIECE, self.dim)) for start in range(0, self.dim, PIECE))

    @cached_property
    def number(self) -> np.dtype[Any]:
        """The type in which both sides keep the vector: float32, or float64 if an array is."""
        kinds = dict(zip(self.names, self.types, strict=True))
        return np.dtype("<f8" if any(kinds[name] == "float64" for name in self.coded) else "<f4")

    def piece(self, arrays: Arrays, start: int, stop: int) -> NDArray[Any]:
        """A piece of the vector that these arrays make up, in the vector's type; it may be a view of an array."""
        parts = [arrays[name].reshape(-1)[inside] for name, inside, _ in self._within(start, stop)]
        return (parts[0] if len(parts) == 1 else np.concatenate(parts)).astype(self.number, copy=False)

    def put(self, arrays: Arrays, start: int, values: NDArray[Any]) -> None:
        """Write a piece of the vector into arrays, which round it to their types."""
        for name, inside, within in self._within(start, start + len(values)):
            arrays[name].reshape(-1)[inside] = values[within]

    def empty(self, types: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Arrays for the vector's values, of the layout's types or of others, in the order of all arrays."""
        kinds = dict(zip(self.names, types or self.types, strict=True))
        shapes = dict(zip(self.names, self.shapes, strict=True))
        return {name: np.empty(shapes[name], kinds[name]) for name in self.coded}

    def kept_bytes(self, arrays: Arrays) -> bytes:
        """The bytes of the arrays that travel as they are."""
        return b"".join(np.ascontiguousarray(_little(arrays[name])).tobytes() for name in self.kept)

    def read_kept(self, data: bytes | memoryview, types: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """What `kept_bytes` wrote, as arrays of these types (the layout's, if none are given)."""
        kinds = dict(zip(self.names, types or self.types, strict=True))
        shapes = dict(zip(self.names, self.shapes, strict=True))
        wanted = sum(self.sizes[name] * np.dtype(kinds[name]).itemsize for name in self.kept)
        if len(data) != wanted:
            raise WireError(f"The arrays that travel as they are take {wanted} bytes; there are {len(data)}.")
        found, at = {}, 0
        for name in self.kept:
            kind = np.dtype(kinds[name]).newbyteorder("<")
            values = np.frombuffer(data, kind, self.sizes[name], at).reshape(shapes[name])
            found[name] = values.astype(kind.newbyteorder("="))
            at += values.nbytes
        return found

    def _within(self, start: int, stop: int) -> Iterator[tuple[str, slice, slice]]:
        """The arrays that a piece reaches into: name, stretch of the array, stretch of the piece."""
        at = 0
        for name in self.coded:
            end = at + self.sizes[name]
            first, last = max(at, start), min(end, stop)
            if first < last:
                yield name, slice(first - at, last - at), slice(first - start, last - start)
            at = end


def as_tensor(values: NDArray[Any]) -> Tensor:
    """Numbers as float32, in which differences are sent; a copy where they must not be written to."""
    return torch.from_numpy(np.array(values, dtype=np.float32))


def _little(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)
