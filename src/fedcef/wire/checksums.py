"""CRC-32 of many stretches of the same bytes, each byte being read once however the stretches overlap."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Checksums = NDArray[np.uint32]


def checksums(data: memoryview, starts: Sequence[int], stops: Sequence[int]) -> Checksums:
    """The CRC-32 of data[start:stop] for each pair.

    Of bytes A and B, crc(AB) = crc(A) moved by |B| bytes ⊕ crc(B).  So that of B follows from those of all bytes up to
    where it begins and up to where it ends.
    """
    places = np.unique([*starts, *stops]).tolist()
    known, crc, done = {}, 0, 0
    for place in places:
        crc, done = zlib.crc32(data[done:place], crc), place
        known[place] = crc
    before = np.array([known[start] for start in starts], dtype=np.uint32)
    through = np.array([known[stop] for stop in stops], dtype=np.uint32)
    return through ^ _moved(before, np.array(stops, dtype=np.int64) - np.array(starts, dtype=np.int64))


def _moved(crc: Checksums, distance: NDArray[np.int64]) -> Checksums:
    """What checksums become when so many zero bytes follow, but for those bytes' own checksum: linear over bits."""
    columns = np.array([zlib.crc32(b"\0", 1 << bit) ^ zlib.crc32(b"\0") for bit in range(32)], dtype=np.uint32)
    while distance.any():
        crc = np.where(distance & 1, _product(columns, crc), crc)
        columns, distance = _product(columns, columns), distance >> 1  # twice as far
    return crc


def _product(columns: Checksums, numbers: Checksums) -> Checksums:
    """A matrix of bits times each of the numbers."""
    total = np.zeros_like(numbers)
    for bit in range(32):
        total ^= (numbers >> np.uint32(bit) & np.uint32(1)) * columns[bit]
    return total
