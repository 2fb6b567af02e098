"""Bytes from an enemy: one typed error or a valid frame, and little memory either way."""

from __future__ import annotations

import re
import struct
import tracemalloc

import numpy as np
import pytest
import torch

from fedcef.core import rng
from fedcef.wire import (
    Dense,
    Frame,
    FrameKind,
    Levels,
    LevelTables,
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
)

from .samples import frame, part, repaired, sparse, stacks, symbols, vector

HEADER_SIZE = 19


def seeds() -> list[bytes]:
    """Frames to start from: all kinds, value types and index codes."""
    frames = [
        encode(dict(list(stacks((), dtype).items())[:5]), FrameKind.UP, 3) for dtype in (torch.float32, torch.bfloat16)
    ]
    supports = ("empty", "first", "all", "every seventh", "three clusters", "ends of 2^32 - 1")
    frames += [encode({"c": sparse(name, torch.float16)}, FrameKind.DOWN, 9) for name in supports]
    return [*frames, encode({}, FrameKind.STATE, 0)]


def mutated(data: bytes, other: bytes, random: np.random.Generator) -> bytes:
    changed = bytearray(data)
    way = random.integers(7)
    if way <= 1:  # flipped bits, anywhere or in the structure at the front
        limit = len(changed) if way == 0 else min(len(changed), 60)
        for at in random.integers(limit, size=random.integers(1, 4)):
            changed[at] ^= 1 << int(random.integers(8))
    elif way == 2:
        del changed[random.integers(len(changed)) :]
    elif way == 3:  # a splice of two frames
        changed[random.integers(len(changed)) :] = other[random.integers(len(other)) :]
    elif way == 4:  # a run of bytes taken out or doubled
        start, stop = sorted(random.integers(len(changed), size=2).tolist())
        changed[start:stop] = changed[start:stop] * int(random.choice([0, 2]))
    elif way == 5:  # an extreme number somewhere in the fields
        at = int(random.integers(HEADER_SIZE, max(HEADER_SIZE + 1, min(len(changed) - 4, 80))))
        changed[at : at + 4] = struct.pack("<I", [0, 2**31 - 1, 2**31, 2**32 - 1][random.integers(4)])
    else:
        changed[HEADER_SIZE:] = random.bytes(len(changed) - HEADER_SIZE)
    if len(changed) > HEADER_SIZE + 4 and random.random() < 0.8:  # past the checks of the frame, to the payloads
        changed[11:19] = struct.pack("<Q", len(changed) - HEADER_SIZE - 4)
        return repaired(bytes(changed))
    return bytes(changed)


def test_mutated_frames() -> None:
    random = np.random.default_rng(0)
    frames = seeds()
    valid = 0
    sentences = set()
    for _ in range(1500):
        data, other = (frames[i] for i in random.integers(len(frames), size=2))
        try:
            got = decode(mutated(data, other, random))
        except WireError as error:
            sentences.add(re.sub(r"'.*'|\".*\"|\d+", "", str(error)))  # without names and numbers
        else:
            valid += 1
            encode(got.message, got.kind, got.round)  # a decoded message can be sent on
    assert 50 < valid < 750
    assert len(sentences) > 30  # the mutations reach deep


def peak_of_decoding(data: bytes) -> int:
    """NumPy's allocations are traced, and decoding makes no others of any size."""
    tracemalloc.start()
    try:
        decode(data)
    except WireError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def sparse_frame(count: int, dim: int, values: bytes, section: bytes) -> bytes:
    return frame(part(struct.pack("<BBII", 2, 2, dim, count) + values + section))


def rice_section(parameter: int, unary_size: int, streams: bytes) -> bytes:
    return struct.pack("<BBI", 2, parameter, unary_size) + streams


HUGE, SOME = 2**31, 128_000
LIES: dict[str, bytes] = {
    "dense dim": frame(part(struct.pack("<BBI", 1, 1, HUGE) + bytes(100))),
    "sparse count": sparse_frame(HUGE, HUGE, bytes(100), b""),
    "seeded count": frame(part(struct.pack("<BBII", 3, 1, HUGE, HUGE) + bytes(100))),
    "seeded dim": frame(part(struct.pack("<BBII", 3, 2, HUGE, 1) + bytes(10))),
    "too few indices": sparse_frame(3, HUGE, bytes(6), b"\0" + bytes(4)),
    "bitmap": sparse_frame(3, HUGE, bytes(6), b"\1" + bytes(100)),
    "unary": sparse_frame(3, HUGE, bytes(6), rice_section(0, 2**28, bytes(100))),
    "body length": frame(extra=2**40),
    "one-bits": sparse_frame(3, 8 * SOME, bytes(6), rice_section(0, SOME, b"\xff" * SOME)),
    "one-bits in a bitmap": sparse_frame(3, 8 * SOME, bytes(6), b"\1" + b"\xff" * SOME),
    "zeros": sparse_frame(1, HUGE, bytes(2), rice_section(0, SOME, bytes(SOME))),
}
TRUTHS: dict[str, bytes] = {  # the most memory for their length: two bytes a value and few an index
    "dense": encode({"z": Dense(vector(SOME, torch.float16))}, FrameKind.UP, 0),
    "all in a bitmap": sparse_frame(SOME, SOME, bytes(2 * SOME), b"\1" + b"\xff" * (SOME // 8)),
    "all by Rice 0": sparse_frame(SOME, SOME, bytes(2 * SOME), rice_section(0, SOME // 8, b"\xff" * (SOME // 8))),
    "all by Rice 1": sparse_frame(
        SOME, SOME, bytes(2 * SOME), rice_section(1, SOME // 8, b"\xff" * (SOME // 8) + bytes(SOME // 8))
    ),
    "all by Rice 31": sparse_frame(
        SOME, SOME, bytes(2 * SOME), rice_section(31, SOME // 8, b"\xff" * (SOME // 8) + bytes(SOME * 31 // 8))
    ),
    "raw": sparse_frame(SOME, SOME, bytes(2 * SOME), b"\0" + np.arange(SOME, dtype="<u4").tobytes()),
    "sparse": encode({"c": Sparse(vector(SOME), rng.subset(rng.seed_key(0), 10 * SOME, SOME), HUGE)}, FrameKind.UP, 0),
    "seeded": encode({"c": Seeded(vector(SOME, torch.float16), torch.tensor(1), HUGE)}, FrameKind.UP, 0),
    "bitmap of few": sparse_frame(1, 8 * SOME, bytes(2), b"\1\1" + bytes(SOME - 1)),
    "many parts": frame(*(part(struct.pack("<BBI", 1, 1, 0), b"%d" % i) for i in range(255))),
}


def few_bits() -> dict[str, Payload]:
    """Many entries in few bytes."""
    ones, codes = torch.ones(1), torch.zeros(SOME, dtype=torch.uint8)
    numbers = vector(SOME)
    signs = Levels(codes, ones, "sign")
    empty = Sparse(Levels(codes[:0].expand(1000, 0), ones.expand(1000, 1), "sign"), torch.zeros(1000, 0).long(), 9)
    return {
        "signs": Dense(signs),
        "signs everywhere": Sparse(signs, torch.arange(SOME), SOME),
        "signs here and there": Sparse(signs, rng.subset(rng.seed_key(0), 10 * SOME, SOME), HUGE),
        "clustered signs": Sparse(
            signs, torch.cat([torch.arange(SOME // 2), torch.arange(SOME // 2) * 9 + SOME]), HUGE
        ),
        "one code": Dense(Levels(codes, ones, "log4bit")),
        "Huffman codes": Dense(Levels(symbols((), SOME, 16, spread=0.05), ones, "log4bit")),
        "tables": Dense(LevelTables(codes, torch.ones(1, 2), 1)),
        "no powers": Dense(Powers.of(numbers * 0)),
        "powers": Dense(Powers.of(numbers)),
        "rotated signs": Rotated(signs, torch.tensor(1), SOME, 128),
        "a large product": LowRank(numbers[:40_000].float(), numbers[:40_000].float(), ones, ((40_000, 40_000), 1), 1),
        "many shapes": LowRank(ones[:0], ones[:0], numbers[:9000].float(), (1,) * 9000, 1),
        "many empty payloads": Relay(empty, 0.5),
        "relayed signs": Relay.of([Dense(signs), Dense(signs)], 0.5),
    }


CODED = {name: encode({"c": payload}, FrameKind.DOWN, 0) for name, payload in few_bits().items()}


@pytest.mark.parametrize("name", LIES | TRUTHS)
def test_memory_is_bounded_by_the_frame_s_length(name: str) -> None:
    data = (LIES | TRUTHS)[name]
    assert peak_of_decoding(data) <= 16 * len(data) + 2**20


@pytest.mark.parametrize("name", CODED)
def test_memory_is_bounded_by_the_entries_that_are_sent(name: str) -> None:
    payload, data = few_bits()[name], CODED[name]
    entries = 0 if isinstance(payload, LowRank) else 2 * SOME if name == "relayed signs" else SOME
    payloads = 1001 if name == "many empty payloads" else 3
    assert peak_of_decoding(data) <= 16 * len(data) + 64 * entries + 4096 * payloads + 2**20
    assert isinstance(decode(data), Frame)


@pytest.mark.parametrize("name", TRUTHS)
def test_the_large_frames_are_valid(name: str) -> None:
    assert isinstance(decode(TRUTHS[name]), Frame)


@pytest.mark.parametrize("name", [name for name in LIES if name != "seeded dim"])
def test_the_lies_are_noticed(name: str) -> None:
    with pytest.raises(WireError):
        decode(LIES[name])
