"""A decoder from docs/wire.md alone, with the standard library alone: frames of dense, sparse and seeded vectors.

It has every value type, coding and index code, and refuses all that the page says; slow, and short enough to be read
beside the page.  Streams of bits and codes are in plain_codes.py.  Rotated, low-rank and relayed vectors and contexts
are left to reference.py: `NotHere` is raised.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from .plain_codes import NUMBERS, Bytes, Refused, demand, met, read_codes, read_indices, rice


class NotHere(Exception):
    """A frame that this decoder cannot tell anything about."""


@dataclass
class Vector:
    form: int
    double: bool
    dim: int
    indices: list[int]
    values: list[float]


def f32(x: float) -> float:
    """Rounded to binary32."""
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


def read_frame(data: bytes, max_dim: int = 2**31) -> tuple[int, int, dict[str, Vector]]:
    """Kind, round and vectors of a frame."""
    whole = Bytes(data)
    demand(whole.take(4) == b"FCEF")
    demand(whole.u(1) == 1)
    kind, parts, round_, length = whole.u(1), whole.u(1), whole.u(4), whole.u(8)
    demand(len(data) == 19 + length + 4)
    demand(zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "little"))
    demand(kind in (1, 2, 3))
    body, vectors = Bytes(data[19:-4]), {}
    for _ in range(parts):
        size = body.u(1)
        demand(size > 0)
        try:
            name = body.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise Refused from None
        demand(name not in vectors)
        vectors[name] = read_payload(body, kind, max_dim)
    demand(body.at == length)
    return kind, round_, vectors


def read_payload(body: Bytes, kind: int, max_dim: int) -> Vector:
    form, value_type, dim = body.u(1), body.u(1), body.u(4)
    demand(dim <= max_dim)
    met("form", form, of=[*range(1, 8), *range(192, 256)])
    demand(form != 6 or kind == 2)
    demand(form != 7 or kind != 3)
    if form > 3:
        raise NotHere
    count = dim if form == 1 else body.u(4)
    demand(count <= dim)
    values = read_values(body, value_type, count)
    indices = list(range(dim)) if form == 1 else []
    if form == 2:
        indices = read_indices(body, count, dim)
    if form == 3:
        key = int.from_bytes(body.take(8), "little", signed=True)
        indices = support(key, count, dim)
    return Vector(form, value_type == 4, dim, indices, values)


def support(key: int, count: int, dim: int) -> list[int]:
    wrap = 2**64

    def h(i: int) -> int:
        x = (key + (i + 1) * 0x9E3779B97F4A7C15) % wrap
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % wrap
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % wrap
        x ^= x >> 31
        return x - wrap if x >= wrap // 2 else x

    return sorted(sorted(range(dim), key=lambda i: (h(i), i))[:count])


# values


def read_values(body: Bytes, value_type: int, k: int) -> list[float]:
    met("value type", value_type, of=[*range(1, 8), *range(192, 256)])
    if value_type in NUMBERS:
        return body.floats(k, value_type)
    if value_type == 5:
        table, s = body.u(1), body.u(4)
        met("table", table, of=TABLES)
        levels = [f32(level) for level in TABLES[table]]
        scales = body.floats(blocks(k, s))
        demand(all(abs(scale) < 2.0**125 for scale in scales))
        codes = read_codes(body, k, len(levels), base_3=table == 2)
        return [f32(scales[j // s if s else 0] * levels[code]) for j, code in enumerate(codes)]
    if value_type == 6:
        bits, s = body.u(1), body.u(4)
        met("bits", bits, of=range(1, 5))
        entries = body.floats(blocks(k, s) << bits)
        codes = read_codes(body, k, 1 << bits)
        return [entries[((j // s if s else 0) << bits) + code] for j, code in enumerate(codes)]
    if value_type >= 192:
        raise NotHere
    return read_powers(body, k)


def blocks(k: int, s: int) -> int:
    return -(-k // s) if s else 1


def read_powers(body: Bytes, k: int) -> list[float]:
    coding = body.u(1)
    met("coding of exponents", coding, of=range(3))
    if coding == 0:
        stream = body.stream((9 * k + 7) // 8)
        numbers = [stream.number(9) for _ in range(k)]
        stream.end()
        demand(all(n == 0 or 1 <= n % 256 <= 254 for n in numbers))
        return [(-1.0) ** (n // 256) * 2.0 ** (n % 256 - 127) if n else 0.0 for n in numbers]
    largest, smallest = body.u(1), body.u(1)
    demand(1 <= smallest <= largest + 1 <= 255)
    if coding == 1:
        b, size = body.u(1), body.u(4)
        demand(b <= 7)
        steps = rice(body, size, [b] * k)
    else:
        steps = [code if code < 15 else 15 + body.u(1) for code in read_codes(body, k, 16)]
    zero = largest - smallest + 1
    demand(all(step <= zero for step in steps))
    signs = body.stream((sum(step < zero for step in steps) + 7) // 8)
    values = [(-1.0) ** signs.bit() * 2.0 ** (largest - step - 127) if step < zero else 0.0 for step in steps]
    signs.end()
    return values


def both(*positive: float) -> list[float]:
    return [*(-x for x in reversed(positive)), *positive]


TABLES = {
    1: [-1, 1],
    2: [-1, 0, 1],
    3: [-1, 0, 1],
    4: [i / 7 for i in range(-7, 8)],
    5: [i / 127 for i in range(-127, 128)],
    **{table: both(*(2.0**-i for i in reversed(range(half)))) for table, half in ((6, 2), (7, 4), (8, 8))},
    9: both(0.7978845834732056),
    10: both(0.4527800381183624, 1.5104175806045532),
    11: both(0.2450941801071167, 0.7560052871704102, 1.3439092636108398, 2.1519455909729004),
    12: both(
        *(0.12839503586292267, 0.38804829120635986, 0.6567591428756714, 0.9423404335975647),
        *(1.2562311887741089, 1.6180464029312134, 2.069017171859741, 2.7325894832611084),
    ),
}
