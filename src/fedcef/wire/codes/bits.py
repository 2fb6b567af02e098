"""Streams of bits in bytes.

Bit i of a stream is bit i mod 8 of byte i div 8, counted from the least significant.  A stream ends on a
byte; the bits that fill up its last byte are zero, and a decoder insists on that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcef.wire.reader import WireError

Integers = NDArray[np.int64]

_CHUNK = 1 << 15  # numbers packed at a time: what is computed for them stays in the cache


def bytes_for(bits: int) -> int:
    """How many bytes so many bits take."""
    return (bits + 7) // 8


def pack_unary(numbers: Integers) -> bytes:
    """Each number n as n zeros and a one."""
    ends = np.cumsum(numbers + 1)
    bits = np.zeros(int(ends[-1]) if ends.size else 0, dtype=np.uint8)
    bits[ends - 1] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def positions_of_ones(data: memoryview, count: int, what: str) -> Integers:
    """Where the one-bits of a stream are; there must be `count` of them."""
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little").view(np.bool_)
    ones = int(np.count_nonzero(bits))  # before the positions: they take 8 bytes for each
    if ones != count:
        raise WireError(f"The {what} holds {ones} one-bits where the entry count says {count}.")
    return np.flatnonzero(bits).astype(np.int64, copy=False)


def pack_fixed(numbers: Integers, width: int) -> bytes:
    """The `width` low bits of each number, least significant first."""
    octets = numbers.astype("<u4").view(np.uint8).reshape(-1, 4)
    bits = np.unpackbits(octets, axis=1, count=width, bitorder="little")
    return np.packbits(bits, bitorder="little").tobytes()  # packbits flattens


def pack_varied(numbers: NDArray[np.uint64], widths: Integers) -> bytes:
    """Each number in as many bits as its width says (at most 32), least significant first."""
    ends = np.cumsum(widths)
    total = int(ends[-1]) if ends.size else 0
    words = np.zeros((total >> 5) + 2)
    for first in range(0, len(numbers), _CHUNK):
        part = slice(first, first + _CHUNK)
        starts = ends[part] - widths[part]
        shifted = numbers[part] << (starts & 31).astype(np.uint64)
        word = starts >> 5
        base = int(word[0])
        word -= base
        here = words[base : base + int(word[-1]) + 2]
        # bits of a word that do not overlap add up to less than 2^32, which is exact in bincount's float64
        here += np.bincount(word, weights=shifted & 0xFFFFFFFF, minlength=len(here))
        here += np.bincount(word + 1, weights=shifted >> np.uint64(32), minlength=len(here))
    packed: bytes = words.astype("<u4").tobytes()
    return packed[: bytes_for(total)]


def unpack_varied(data: memoryview, widths: Integers, what: str) -> Integers:
    """Numbers of the given widths (at most 32) from exactly the bytes that they take."""
    ends = np.cumsum(widths)
    require_zero_padding(data, int(ends[-1]) if ends.size else 0, what)
    starts = ends - widths
    octets = np.zeros(len(data) + 8, dtype=np.uint8)
    octets[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    at = starts >> 3
    numbers: Integers = octets[at].astype(np.int64)
    for byte in range(1, 5):  # 32 bits from within a byte touch five
        numbers |= octets[at + byte].astype(np.int64) << 8 * byte
    numbers >>= starts & 7
    numbers &= (np.int64(1) << widths) - 1
    return numbers


def unpack_fixed(data: memoryview, count: int, width: int, what: str) -> NDArray[np.uint32]:
    """`count` numbers of `width` bits (at most 32) from exactly the bytes that they take."""
    require_zero_padding(data, count * width, what)
    if width == 0:
        return np.zeros(count, dtype=np.uint32)
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count * width, bitorder="little")
    octets = np.zeros((count, 4), dtype=np.uint8)
    octets[:, : bytes_for(width)] = np.packbits(bits.reshape(count, width), axis=1, bitorder="little")
    return octets.view("<u4").reshape(count).astype(np.uint32, copy=False)


def require_zero_padding(data: memoryview, bits: int, what: str) -> None:
    """The bits of the last byte that lie beyond the first `bits` of the stream must be zero."""
    if bits % 8 and data[-1] >> bits % 8:
        raise WireError(f"The {what} has non-zero padding after its {bits} bits; padding must be zero.")
