"""A second decoder, bit by bit in plain Python, written from docs/wire.md and not from the code."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass


@dataclass
class Part:
    form: int
    dim: int
    values: list[float]
    indices: list[int] | None = None
    index_code: int | None = None
    key: int | None = None


class Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        self.at += size
        assert self.at <= len(self.data)
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")


def bits_of(data: bytes) -> list[int]:
    return [byte >> position & 1 for byte in data for position in range(8)]


def read_frame(data: bytes) -> tuple[int, int, dict[str, Part]]:
    cursor = Cursor(data)
    assert cursor.take(4) == b"FCEF"
    assert cursor.number(1) == 1
    kind, count, round_, body = (cursor.number(size) for size in (1, 1, 4, 8))
    assert len(data) == 19 + body + 4
    assert int.from_bytes(data[-4:], "little") == zlib.crc32(data[:-4])
    parts = {cursor.take(cursor.number(1)).decode(): read_part(cursor) for _ in range(count)}
    assert cursor.at == 19 + body
    return kind, round_, parts


def read_part(cursor: Cursor) -> Part:
    form, value_type, dim = (cursor.number(size) for size in (1, 1, 4))
    count = dim if form == 1 else cursor.number(4)
    part = Part(form, dim, [read_value(cursor, value_type) for _ in range(count)])
    if form == 2:
        part.index_code = cursor.number(1)
        part.indices = read_indices(cursor, part.index_code, count, dim)
    if form == 3:
        part.key = int.from_bytes(cursor.take(8), "little", signed=True)
    return part


def read_value(cursor: Cursor, value_type: int) -> float:
    if value_type == 3:
        return unpacked("<f", bytes(2) + cursor.take(2))
    return unpacked({1: "<f", 2: "<e", 4: "<d"}[value_type], cursor.take({1: 4, 2: 2, 4: 8}[value_type]))


def unpacked(layout: str, data: bytes) -> float:
    return float(struct.unpack(layout, data)[0])


def read_indices(cursor: Cursor, code: int, count: int, dim: int) -> list[int]:
    if code == 0:
        return [cursor.number(4) for _ in range(count)]
    if code == 1:
        return [index for index, bit in enumerate(bits_of(cursor.take((dim + 7) // 8))) if bit]
    width, unary_size = cursor.number(1), cursor.number(4)
    unary = iter(bits_of(cursor.take(unary_size)))
    low = iter(bits_of(cursor.take((count * width + 7) // 8)))
    indices, previous = [], -1
    for _ in range(count):
        quotient = 0
        while next(unary) == 0:
            quotient += 1
        gap = (quotient << width) + sum(next(low) << position for position in range(width))
        previous += gap + 1
        indices.append(previous)
    assert not any(unary)
    assert not any(low)
    return indices


def support(key: int, dim: int, count: int) -> list[int]:
    wrap = 2**64

    def mix(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % wrap
        x = (x ^ x >> 27) * 0x94D049BB133111EB % wrap
        return x ^ x >> 31

    def signed(x: int) -> int:
        return x - wrap if x >= wrap // 2 else x

    hashes = [signed(mix((key + (i + 1) * 0x9E3779B97F4A7C15) % wrap)) for i in range(dim)]
    return sorted(sorted(range(dim), key=hashes.__getitem__)[:count])
