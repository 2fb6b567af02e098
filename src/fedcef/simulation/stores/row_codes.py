"""How a client's row is written as bytes: as it is, in half the bits, or without its zeros.

* `exact`: every number as it is.
* `bfloat16`: every number rounded to bfloat16, which keeps eight of its bits: half the bytes, and other results.
* `nonzeros`: positions of the entries that are not zero, and those as they are: to the last bit the same.  What a
  client has sent by Top-k adds up to few entries; and where these have few values, as sums of signs have, they are a
  table of the values and for each entry its number in that, in as few bits as tell them apart.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.wire.codes.indices import encode_indices, read_indices
from fedcef.wire.reader import Reader

_WORDS: dict[int, type[np.unsignedinteger]] = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_COUNTS = struct.Struct("<IH")  # entries that are not zero, and distinct values among them, 0 for too many
_DENSE = 2**32 - 1  # in the place of a count: all entries follow
_MOST_VALUES = 2**16 - 1
_SHORT = 1 << 16  # entries of a vector whose positions are written as they are


class RowCode(ABC):
    """Turns the row of a client, a vector for each name, into bytes and back."""

    lossless: bool = True

    def encode(self, row: State) -> bytes:
        """The bytes of a row on the host."""
        return b"".join(self.vector(vector) for vector in row.values())

    def decode(self, data: bytes, like: State) -> State:
        """The row that these bytes were made of; `like` has its names, shapes and types."""
        reader = Reader(memoryview(data))
        return {name: self.read(reader, vector) for name, vector in like.items()}

    @abstractmethod
    def vector(self, vector: Tensor) -> bytes:
        """The bytes of one vector."""

    @abstractmethod
    def read(self, reader: Reader, like: Tensor) -> Tensor:
        """The next vector, with the shape and type of `like`."""


class Exact(RowCode):
    """Every number as it is."""

    def vector(self, vector: Tensor) -> bytes:
        """The numbers."""
        return vector.contiguous().numpy().tobytes()

    def read(self, reader: Reader, like: Tensor) -> Tensor:
        """The numbers, in memory of their own."""
        return _numbers(reader, like.numel(), like.dtype).view(like.shape)


class BFloat16(RowCode):
    """Every floating number in half of float32's bits."""

    lossless = False

    def vector(self, vector: Tensor) -> bytes:
        """The numbers, rounded; whole ones as they are."""
        if not vector.is_floating_point():
            return Exact().vector(vector)
        return vector.to(torch.bfloat16).view(torch.int16).numpy().tobytes()

    def read(self, reader: Reader, like: Tensor) -> Tensor:
        """The rounded numbers, in the type of `like`."""
        if not like.is_floating_point():
            return Exact().read(reader, like)
        return _numbers(reader, like.numel(), torch.bfloat16).to(like.dtype).view(like.shape)


class NonZeros(RowCode):
    """The entries that are not zero, whose sign counts, too; all of them where that is shorter."""

    def vector(self, vector: Tensor) -> bytes:
        """Counts, positions and values; or all numbers."""
        words = vector.contiguous().view(-1).numpy().view(_WORDS[vector.element_size()])
        places = np.flatnonzero(words)
        kept = words[places]
        values, numbers = np.unique(kept, return_inverse=True)
        few = len(values) <= _MOST_VALUES and _table_nbytes(len(places), values) < kept.nbytes
        body = values.tobytes() + _packed(numbers, len(values)) if few else kept.tobytes()
        coded = _places(places, len(words)) + body
        if len(coded) < words.nbytes:
            return _COUNTS.pack(len(places), len(values) if few else 0) + coded
        return _COUNTS.pack(_DENSE, 0) + words.tobytes()

    def read(self, reader: Reader, like: Tensor) -> Tensor:
        """Zeros, but for what was written."""
        word, size = _WORDS[like.element_size()], like.numel()
        count, distinct = reader.unpack(_COUNTS, "the counts of a row")
        if count == _DENSE:
            return Exact().read(reader, like)
        places = _read_places(reader, count, size)

        def words(of: int, kind: type[np.unsignedinteger]) -> np.ndarray:
            return np.frombuffer(reader.take(of * np.dtype(kind).itemsize, "a row's numbers"), kind)

        if distinct:
            values = words(distinct, word)
            kept = values[_unpacked(words(-(-count * _bits(distinct) // 8), np.uint8), count, distinct)]
        else:
            kept = words(count, word)
        row = np.zeros(size, word)
        row[places] = kept
        return torch.from_numpy(row).view(like.dtype).view(like.shape)


def _places(places: NDArray[np.intp], size: int) -> bytes:
    """Ascending positions: two bytes each in a short vector, where that is done in no time, or their shortest code."""
    return places.astype("<u2").tobytes() if size <= _SHORT else encode_indices(torch.from_numpy(places), size)


def _read_places(reader: Reader, count: int, size: int) -> NDArray[np.intp]:
    if size > _SHORT:
        return read_indices(reader, count, size).numpy()
    return np.frombuffer(reader.take(2 * count, "a row's positions"), "<u2").astype(np.intp)


def _bits(distinct: int) -> int:
    """How many bits tell so many values apart."""
    return max(1, (distinct - 1).bit_length())


def _table_nbytes(count: int, values: NDArray[np.unsignedinteger]) -> int:
    return values.nbytes + -(-count * _bits(len(values)) // 8)


def _packed(numbers: NDArray[np.intp], distinct: int) -> bytes:
    """Numbers below `distinct`, one after the other in as few bits as they need."""
    places = np.arange(_bits(distinct))
    return np.packbits((numbers.reshape(-1, 1) >> places & 1).astype(np.uint8)).tobytes()


def _unpacked(data: NDArray[np.uint8], count: int, distinct: int) -> NDArray[np.intp]:
    bits = np.unpackbits(data, count=count * _bits(distinct)).reshape(count, -1).astype(np.intp)
    numbers: NDArray[np.intp] = bits @ (1 << np.arange(_bits(distinct)))
    return np.minimum(numbers, distinct - 1)  # whatever a damaged file says


def _numbers(reader: Reader, count: int, dtype: torch.dtype) -> Tensor:
    """The next numbers, in memory of their own."""
    data = reader.take(count * dtype.itemsize, "a row's numbers")
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy()).view(dtype)


ROW_CODES: dict[str, type[RowCode]] = {"exact": Exact, "bfloat16": BFloat16, "nonzeros": NonZeros}
