"""A second decoder, bit by bit in plain Python, written from docs/wire.md and not from the code."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt

import numpy as np

Vector = np.ndarray


@dataclass
class Part:
    form: int
    dim: int
    values: list[float]
    indices: list[int] | None = None
    index_code: int | None = None
    key: int | None = None
    vector: Vector = field(default_factory=lambda: np.zeros(0))


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
    if form == 4:
        return read_rotated(cursor, value_type, dim)
    if form == 5:
        return read_low_rank(cursor, value_type, dim)
    if form == 6:
        return read_relay(cursor, value_type, dim)
    count = dim if form == 1 else cursor.number(4)
    part = Part(form, dim, read_values(cursor, value_type, count))
    if form == 2:
        part.index_code = cursor.number(1)
        part.indices = read_indices(cursor, part.index_code, count, dim)
    if form == 3:
        part.key = int.from_bytes(cursor.take(8), "little", signed=True)
    if dim < 10_000:
        chosen = part.indices if form == 2 else support(part.key, dim, count) if part.key is not None else range(dim)
        part.vector = np.zeros(dim, dtype=np.float64 if value_type == 4 else np.float32)
        part.vector[list(chosen)] = part.values
    return part


def read_rotated(cursor: Cursor, value_type: int, dim: int) -> Part:
    log = cursor.number(1)
    key = int.from_bytes(cursor.take(8), "little", signed=True)
    size = 2**log
    part = Part(4, dim, read_values(cursor, value_type, -(-dim // size) * size), key=key)
    y = [np.float32(value) for value in part.values]
    for step in (2**t for t in range(log)):
        for j in range(len(y)):
            if j & step == 0:
                y[j], y[j + step] = y[j] + y[j + step], y[j] - y[j + step]
    scale = np.float32(1 / sqrt(size))
    signs = hashes(key, dim)
    part.vector = np.array([-(u * scale) if h < 0 else u * scale for u, h in zip(y, signs, strict=False)], np.float32)
    return part


def read_low_rank(cursor: Cursor, value_type: int, dim: int) -> Part:
    assert value_type == 1
    rank, count = cursor.number(1), cursor.number(4)
    shapes = [(cursor.number(4), cursor.number(4)) for _ in range(count)]
    matrices = [shape for shape in shapes if shape[1]]
    sizes = [
        rank * sum(n for n, _ in matrices),
        rank * sum(m for _, m in matrices),
        sum(n for n, m in shapes if m == 0),
    ]
    left, right, rest = (iter([np.float32(read_value(cursor, 1)) for _ in range(size)]) for size in sizes)
    entries = []
    for n, m in shapes:
        if m == 0:
            entries += [next(rest) for _ in range(n)]
            continue
        rows = [[next(left) for _ in range(rank)] for _ in range(n)]
        columns = [[next(right) for _ in range(rank)] for _ in range(m)]
        for row in rows:
            for column in columns:
                total = row[0] * column[0]
                for r in range(1, rank):
                    total = total + row[r] * column[r]
                entries.append(total)
    assert len(entries) == dim
    return Part(5, dim, [], vector=np.array(entries, dtype=np.float32))


def read_relay(cursor: Cursor, value_type: int, dim: int) -> Part:
    assert value_type == 0
    factor, count = unpacked("<d", cursor.take(8)), cursor.number(2)
    vectors = [read_part(cursor).vector for _ in range(count)]
    kind = vectors[0].dtype.type
    total = np.zeros(dim, dtype=kind)
    for one in vectors:
        total = total + one.astype(kind)
    return Part(6, dim, [], vector=total / kind(count) * kind(factor) + kind(0))


def read_values(cursor: Cursor, value_type: int, count: int) -> list[float]:
    if value_type <= 4:
        return [read_value(cursor, value_type) for _ in range(count)]
    if value_type == 5:
        which, block = cursor.number(1), cursor.number(4)
        table = TABLES[which]
        scales = [np.float32(read_value(cursor, 1)) for _ in range(-(-count // block) if block else 1)]
        codes = read_codes(cursor, count, len(table), base_3=which == 2)
        return [float(scales[j // block if block else 0] * np.float32(table[code])) for j, code in enumerate(codes)]
    if value_type == 6:
        bits, block = cursor.number(1), cursor.number(4)
        blocks = -(-count // block) if block else 1
        tables = [[read_value(cursor, 1) for _ in range(2**bits)] for _ in range(blocks)]
        codes = read_codes(cursor, count, 2**bits)
        return [tables[j // block if block else 0][code] for j, code in enumerate(codes)]
    assert value_type == 7
    return read_powers(cursor, count)


def read_powers(cursor: Cursor, count: int) -> list[float]:
    coding = cursor.number(1)
    if coding == 0:
        stream = iter(bits_of(cursor.take((9 * count + 7) // 8)))
        numbers = [number(stream, 9) for _ in range(count)]
        assert not any(stream)
        return [0.0 if n == 0 else (-1) ** (n >> 8) * 2.0 ** ((n & 255) - 127) for n in numbers]
    largest, smallest = cursor.number(1), cursor.number(1)
    if coding == 1:
        width, unary_size = cursor.number(1), cursor.number(4)
        steps = list(rice_numbers(cursor, [width] * count, unary_size))
    else:
        steps = [s if s < 15 else 15 + cursor.number(1) for s in read_codes(cursor, count, 16)]
    kept = sum(step <= largest - smallest for step in steps)
    signs = iter(bits_of(cursor.take((kept + 7) // 8)))
    values = [0.0 if d == largest - smallest + 1 else (-1) ** next(signs) * 2.0 ** (largest - d - 127) for d in steps]
    assert not any(signs)
    return values


def read_codes(cursor: Cursor, count: int, size: int, *, base_3: bool = False) -> list[int]:
    coding = cursor.number(1)
    if coding == 0 and base_3:
        digits = [byte // 3**i % 3 for byte in cursor.take((count + 4) // 5) for i in range(5)]
        assert not any(digits[count:])
        return digits[:count]
    if coding == 0:
        width = (size - 1).bit_length()
        stream = iter(bits_of(cursor.take((count * width + 7) // 8)))
        codes = [number(stream, width) for _ in range(count)]
        assert not any(stream)
        return codes
    together = {2: 4, 3: 2, 4: 2}.get(size, 1)
    tuples = size**together
    stream = iter(bits_of(cursor.take((4 * tuples + 7) // 8)))
    lengths = [number(stream, 4) for _ in range(tuples)]
    stream = iter(bits_of(cursor.take(cursor.number(4))))
    order = sorted((length, code) for code, length in enumerate(lengths) if length)
    words, word = {"0" * order[0][0]: order[0][1]}, "0" * order[0][0]
    for (before, _), (length, code) in pairwise(order):
        word = f"{int(word, 2) + 1:0{before}b}".ljust(length, "0")
        words[word] = code
    codes = []
    while len(codes) < count:
        word = ""
        while word not in words:
            word += str(next(stream))
        codes += [words[word] // size**i % size for i in range(together)]
    assert not any(stream)
    assert not any(codes[count:])
    return codes[:count]


def number(stream: Iterator[int], width: int) -> int:
    return sum(next(stream) << position for position in range(width))


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
    if code == 2:
        width, unary_size = cursor.number(1), cursor.number(4)
        widths = [width] * count
    else:
        unary_size, groups = cursor.number(4), (count + 127) // 128
        stream = iter(bits_of(cursor.take((5 * groups + 7) // 8)))
        parameters = [number(stream, 5) for _ in range(groups)]
        assert not any(stream)
        widths = [parameters[j // 128] for j in range(count)]
    indices, previous = [], -1
    for gap in rice_numbers(cursor, widths, unary_size):
        previous += gap + 1
        indices.append(previous)
    return indices


def rice_numbers(cursor: Cursor, widths: list[int], unary_size: int) -> Iterator[int]:
    unary = iter(bits_of(cursor.take(unary_size)))
    low = iter(bits_of(cursor.take((sum(widths) + 7) // 8)))
    for width in widths:
        quotient = 0
        while next(unary) == 0:
            quotient += 1
        yield (quotient << width) + number(low, width)
    assert not any(unary)
    assert not any(low)


def support(key: int, dim: int, count: int) -> list[int]:
    return sorted(sorted(range(dim), key=hashes(key, dim).__getitem__)[:count])


def hashes(key: int, dim: int) -> list[int]:
    wrap = 2**64

    def mix(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % wrap
        x = (x ^ x >> 27) * 0x94D049BB133111EB % wrap
        return x ^ x >> 31

    def signed(x: int) -> int:
        return x - wrap if x >= wrap // 2 else x

    return [signed(mix((key + (i + 1) * 0x9E3779B97F4A7C15) % wrap)) for i in range(dim)]


def both_signs(*positive: float) -> list[float]:
    return sorted([*positive, *(-x for x in positive)])


TABLES = {
    1: both_signs(1),
    2: [-1, 0, 1],
    3: [-1, 0, 1],
    4: [i / 7 for i in range(-7, 8)],
    5: [i / 127 for i in range(-127, 128)],
    6: both_signs(*(2**-i for i in range(2))),
    7: both_signs(*(2**-i for i in range(4))),
    8: both_signs(*(2**-i for i in range(8))),
    9: both_signs(0.7978845834732056),
    10: both_signs(0.4527800381183624, 1.5104175806045532),
    11: both_signs(0.2450941801071167, 0.7560052871704102, 1.3439092636108398, 2.1519455909729004),
    12: both_signs(
        0.12839503586292267,
        0.38804829120635986,
        0.6567591428756714,
        0.9423404335975647,
        1.2562311887741089,
        1.6180464029312134,
        2.069017171859741,
        2.7325894832611084,
    ),
}
