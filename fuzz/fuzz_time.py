"""Frames made to take long: what is computed from them must take the time that docs/wire.md says, and no more.

python fuzz/fuzz_time.py [--quick]

Seconds of the CPU are held against a bound with room for slow machines: what it is there to find is a step that is
quadratic, or one that goes with numbers which a sender can write down for nothing.  --quick takes smaller vectors.
"""

from __future__ import annotations

import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import torch

from fedcef.core import rng
from fedcef.wire import (
    Dense,
    FrameKind,
    Levels,
    LowRank,
    Payload,
    Powers,
    Relay,
    Rotated,
    Seeded,
    Sparse,
    WireError,
    decode,
    encode,
    split,
)
from fedcef.wire.codes.huffman import encode_symbols
from fedcef.wire.forms.relay import Rows

PER_PAYLOAD, PER_BYTE, PER_ENTRY = 0.6e-3, 0.3e-6, 0.1e-6
"""Seconds: three times what a slow core takes."""
LONG_CODE = bytes.fromhex("21436587a9cbedff")  # lengths 1, 2, …, 14, 15, 15 of the codewords for 16 codes


@dataclass(frozen=True)
class Taken:
    """What a frame took."""

    what: str
    nbytes: int
    payloads: int
    entries: int  # Σ p · (1 + r + a)
    seconds: float

    @property
    def share(self) -> float:
        """Of the bound."""
        bound = self.nbytes * PER_BYTE + self.payloads * PER_PAYLOAD + self.entries * PER_ENTRY
        return self.seconds / bound

    def __str__(self) -> str:
        ratio = f"{self.share:7.1%} of the bound"
        return f"{self.what:48} {self.nbytes:>10,} B {self.payloads:>7,} payloads {self.seconds:8.3f} s {ratio}"


def cases(p: int, many: int) -> Iterator[tuple[str, bytes]]:
    """Frames with vectors of length p and relays of `many` payloads."""
    tiny = {
        "number": Sparse(torch.ones(1), torch.tensor([7]), 100).encode(),
        "sign": Sparse(Levels(torch.ones(1).byte(), torch.ones(1), "sign"), torch.tensor([7]), 100).encode(),
        "power of two": Sparse(Powers.of(torch.ones(1)), torch.tensor([7]), 100).encode(),
        "Huffman code, grouped Rice": head(2, 7, 100, "I", 1)
        + b"\2\x7f\x10\1"
        + LONG_CODE
        + b"\1\0\0\0\0\0"
        + b"\3\1\0\0\0\0\1",
        "drawn entry": head(3, 1, 100, "Ifq", 1, 1.0, 5),
        "rotation": Rotated(torch.ones(100), torch.tensor(1), 100, 1).encode(),
        "product": LowRank(torch.ones(10), torch.ones(10), torch.ones(0), ((10, 10),), 1).encode(),
        "dense table": Dense(Levels(torch.zeros(100).byte(), torch.ones(1), "normal4")).encode(),
    }
    for name, payload in tiny.items():
        yield f"relay of {many:,}: {name}", down(relay(100, [payload] * many))
    yield f"relay of {many:,} vectors of nothing", down(relay(0, [head(1, 1, 0)] * many))
    yield f"relay of 64 different draws of {p:,}", down(relay(p, [head(3, 1, p, "Ifq", 1, 1.0, i) for i in range(64)]))
    yield "16 vectors drawn by one entry each", down(*(head(3, 1, p, "Ifq", 1, 1.0, i) for i in range(16)))
    yield "half of a vector drawn", down(Seeded(torch.ones(p // 2).half(), torch.tensor(3), p).encode())
    yield "255 empty vectors", down(*[head(1, 1, 0)] * 255)
    shapes = min(p, 131_072)
    for name, kinds in {"(1, 1)": [(1, 1)], "two kinds in turn": [(1, 1), (1, 2)], "stretches of 1": [(1, 0)]}.items():
        yield f"{shapes:,} shapes: {name}", down(products([kinds[i % len(kinds)] for i in range(shapes)], 1))
    yield f"{shapes:,} shapes of nothing", down(products([(0, 0)] * shapes, 1))
    side = int(p**0.5)
    yield f"rank 255 of {side} x {side}", down(products([(side, side)], 255))
    yield "signs alike, 32 a byte", down(Dense(Levels(torch.zeros(p).byte(), torch.ones(1), "sign")).encode())
    yield "rotated signs in blocks of 65,536", down(rotated_signs(p))
    yield "a rotation of one entry", down(rotated_signs(1))
    yield "a bitmap with one entry", down(head(2, 1, p, "If", 1, 1.0) + b"\1\1" + bytes((p + 7) // 8 - 1))
    zeros = p // 8
    yield "a unary stream of zeros", down(head(2, 1, p, "If", 1, 1.0) + struct.pack("<BBI", 2, 0, zeros) + bytes(zeros))
    noise = Levels((rng.bits(rng.seed_key(1), p) & 15).byte(), torch.ones(1), "log4bit")
    yield "a long Huffman code", down(huffman(noise, p))


def head(form: int, values: int, dim: int, fields: str = "", *numbers: float) -> bytes:
    """A payload's head, and fields after it."""
    return struct.pack("<BBI" + fields, form, values, dim, *numbers)


def down(*payloads: bytes) -> bytes:
    """A frame of these payloads."""
    body = b"".join(
        b"\2" + struct.pack(">H", 0x4141 + 256 * (i // 26) + i % 26) + one for i, one in enumerate(payloads)
    )
    data = struct.pack("<4sBBBIQ", b"FCEF", 1, 2, len(payloads), 0, len(body)) + body
    return data + struct.pack("<I", zlib.crc32(data))


def relay(dim: int, payloads: list[bytes]) -> bytes:
    """A payload that passes on others."""
    return head(6, 0, dim, "dH", 1.0, len(payloads)) + b"".join(payloads)


def products(shapes: list[tuple[int, int]], rank: int) -> bytes:
    """A low-rank payload of ones."""
    numbers = sum(rank * (n + m) if m else n for n, m in shapes)
    fields = b"".join(struct.pack("<II", *shape) for shape in shapes)
    dim = sum(n * (m or 1) for n, m in shapes)
    return head(5, 1, dim, "BI", rank, len(shapes)) + fields + struct.pack("<f", 1.0) * numbers


def rotated_signs(dim: int) -> bytes:
    """Signs that are all alike, in the largest blocks."""
    size = -(-dim // 2**16) * 2**16
    return Rotated(Levels(torch.zeros(size).byte(), torch.ones(1), "sign"), torch.tensor(1), dim, 2**16).encode()


def huffman(values: Levels, count: int) -> bytes:
    """Levels in a code with codewords of up to 15 bits, whatever they are."""
    lengths = [*range(1, 16), 15]
    stream = encode_symbols(values.codes.numpy(), lengths)
    return head(1, 5, count, "BIf", 8, 0, 1.0) + b"\1" + LONG_CODE + struct.pack("<I", len(stream)) + stream


def computed(data: bytes) -> tuple[int, int]:
    """Decode a frame and compute its vectors; its number of payloads, and Σ p · (1 + r + a)."""
    payloads, entries = 0, 0
    for payload in decode(data).message.values():
        payload.dense()
        rows = (
            list(payload.parts.rows()) if isinstance(payload, Relay) and isinstance(payload.parts, Rows) else [payload]
        )
        payloads, entries = payloads + len(rows), entries + sum(map(passes, rows))
    return payloads, entries


def passes(payload: Payload) -> int:
    """p · (1 + r + a), with p filled up to whole blocks."""
    if isinstance(payload, Rotated):
        return payload.values.shape[-1] * payload.block.bit_length()
    return payload.dim * (1 + (payload.rank if isinstance(payload, LowRank) else 0))


def torn_log(size: int) -> bytes:
    """A log whose last frame is torn and holds what looks like frames, each of which would end with the log."""
    log = encode({"z": Dense(torch.ones(5))}, FrameKind.DOWN, 0)
    values = bytearray(size)
    for at in range(0, size - 2000, 50):
        values[at : at + 19] = struct.pack("<4sBBBIQ", b"FCEF", 1, 2, 1, 2, size - at - 60)
    torn = encode({"z": Dense(torch.frombuffer(values, dtype=torch.float32))}, FrameKind.DOWN, 1)
    return log + torn[:-4]


def timed(function: Callable[[], tuple[int, int]]) -> tuple[float, int, int]:
    """Seconds of the CPU, and what the function returns; nothing if it refuses."""
    began, found = time.process_time(), (1, 0)
    with suppress(WireError):
        found = function()
    return time.process_time() - began, *found


def run(p: int, many: int) -> Iterator[Taken]:
    """Try all frames."""
    for what, data in cases(p, many):
        seconds, payloads, entries = timed(partial(computed, data))
        yield Taken(what, len(data), payloads, entries, seconds)
    log = torn_log(4 * (p // 4))
    seconds, frames, _ = timed(lambda: (len(split(log)[0]), 0))
    yield Taken("a torn log entry full of false headers", len(log), frames, 0, seconds)


def main() -> None:
    """The command."""
    torch.set_num_threads(1)
    computed(down(head(1, 1, 0)))  # what is loaded once is not counted
    worst = 0.0
    for one in run(400_000, 2_000) if "--quick" in sys.argv[1:] else run(4_460_106, 65_535):
        print(one, flush=True)
        worst = max(worst, one.share)
    sys.exit(worst > 1)


if __name__ == "__main__":
    main()
