"""What plain.py reads payloads with: bytes, streams of bits, codes of levels, indices; from docs/wire.md alone."""

from __future__ import annotations

import math
import struct
from collections.abc import Container

NUMBERS = {1: ("<f", 4), 2: ("<e", 2), 3: ("", 2), 4: ("<d", 8)}


class Refused(Exception):
    """A frame that the page does not allow."""


SEEN: set[tuple[str, int]] = set()
"""The numbers that were met, by what they number."""


def demand(holds: bool) -> None:
    if not holds:
        raise Refused


def met(what: str, number: int, *, of: Container[int]) -> None:
    """Refuse an unknown number, and note a known one."""
    demand(number in of)
    SEEN.add((what, number))


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        demand(self.at + size <= len(self.data))
        self.at += size
        return self.data[self.at - size : self.at]

    def u(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def floats(self, count: int, value_type: int = 1) -> list[float]:
        layout, size = NUMBERS[value_type]
        raw = self.take(count * size)
        each = [raw[i * size : (i + 1) * size] for i in range(count)]
        numbers = [
            struct.unpack("<f", bytes(2) + one)[0] if value_type == 3 else struct.unpack(layout, one)[0] for one in each
        ]
        demand(all(map(math.isfinite, numbers)))
        return numbers

    def stream(self, size: int) -> Bits:
        return Bits(self.take(size))


class Bits:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def bit(self) -> int:
        demand(self.at < 8 * len(self.data))
        self.at += 1
        return self.data[(self.at - 1) // 8] >> (self.at - 1) % 8 & 1

    def number(self, width: int) -> int:
        return sum(self.bit() << i for i in range(width))

    def unary(self) -> int:
        zeros = 0
        while not self.bit():
            zeros += 1
        return zeros

    def end(self) -> None:
        """No more bytes than the bits need, and zeros in what fills up the last."""
        demand(len(self.data) == (self.at + 7) // 8)
        demand(not any(self.bit() for _ in range(8 * len(self.data) - self.at)))


def read_codes(body: Bytes, k: int, size: int, *, base_3: bool = False) -> list[int]:
    coding = body.u(1)
    met(f"coding of {size} codes", coding, of=range(2 if size <= 16 else 1))
    if coding == 1:
        return read_huffman(body, k, size)
    if base_3:
        octets = body.take((k + 4) // 5)
        demand(all(octet <= 242 for octet in octets))
        digits = [octet // 3**i % 3 for octet in octets for i in range(5)]
        demand(not any(digits[k:]))
        return digits[:k]
    width = (size - 1).bit_length()
    stream = body.stream((k * width + 7) // 8)
    codes = [stream.number(width) for _ in range(k)]
    stream.end()
    demand(all(code < size for code in codes))
    return codes


def read_huffman(body: Bytes, k: int, size: int) -> list[int]:
    together = {2: 4, 3: 2, 4: 2}.get(size, 1)
    symbols = size**together
    stream = body.stream((symbols + 1) // 2)
    lengths = [stream.number(4) for _ in range(symbols)]
    stream.end()
    demand(sum(2 ** (15 - length) for length in lengths if length) == 2**15 or sum(lengths) == 1)
    words, word, before = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        word <<= length - before
        words[length, word] = symbol
        word, before = word + 1, length
    stream, codes = body.stream(body.u(4)), []
    for _ in range(-(-k // together)):
        length, word = 1, stream.bit()
        while (length, word) not in words:
            demand(length < 15)
            length, word = length + 1, 2 * word + stream.bit()
        codes += [words[length, word] // size**i % size for i in range(together)]
    stream.end()
    demand(not any(codes[k:]))
    return codes[:k]


def read_indices(body: Bytes, k: int, p: int) -> list[int]:
    code = body.u(1)
    met("index code", code, of=range(4))
    if code == 0:
        indices = [body.u(4) for _ in range(k)]
    elif code == 1:
        stream = body.stream((p + 7) // 8)
        indices = [i for i in range(p) if stream.bit()]
        stream.end()
        demand(len(indices) == k)
    else:
        indices = [-1, *read_gaps(body, k, p, grouped=code == 3)]
        for j in range(1, len(indices)):
            indices[j] += indices[j - 1] + 1
        del indices[0]
    demand(indices == sorted(set(indices)) and indices[-1:] < [p])
    return indices


def read_gaps(body: Bytes, k: int, p: int, *, grouped: bool) -> list[int]:
    if grouped:
        size, groups = body.u(4), -(-k // 128)
        stream = body.stream((5 * groups + 7) // 8)
        parameters = [stream.number(5) for _ in range(groups)]
        stream.end()
    else:
        parameters, size = [body.u(1)] * max(1, -(-k // 128)), body.u(4)
        demand(parameters[0] <= 31)
    demand(size <= (k + ((p - k) >> min(parameters, default=31)) + 7) // 8)
    return rice(body, size, [parameters[j // 128] for j in range(k)])


def rice(body: Bytes, size: int, widths: list[int]) -> list[int]:
    """Numbers in Rice codes with these parameters, and a unary stream of this size."""
    unary, low = body.stream(size), body.stream((sum(widths) + 7) // 8)
    numbers = [(unary.unary() << width) + low.number(width) for width in widths]
    unary.end()
    low.end()
    return numbers
