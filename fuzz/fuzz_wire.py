"""Mutated frames for the wire decoder: nothing but a WireError or a finite message may come of them.

python fuzz/fuzz_wire.py [frames] [seed]
"""

from __future__ import annotations

import re
import resource
import struct
import sys
import time
import tracemalloc
import zlib
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.wire import (
    TABLES,
    Context,
    Dense,
    FrameKind,
    Levels,
    LevelTables,
    LowRank,
    Nonzeros,
    Payload,
    Powers,
    Relay,
    Rotated,
    Seeded,
    Sparse,
    Values,
    WireError,
    decode,
    encode,
    frame_nbytes,
    rotate,
)

FRAMES = 1_000_000
MAX_DIM = 4096  # what is decoded is also computed, and that takes memory and time for dim entries
HEADER_SIZE = 19
MEMORY_EVERY, ENCODE_EVERY = 200, 20
EXTREMES = {
    "<B": [0, 1, 2, 3, 7, 15, 31, 32, 127, 128, 243, 255],
    "<H": [0, 1, 255, 256, 2**15, 2**16 - 1],
    "<I": [0, 1, 127, 128, 129, MAX_DIM, MAX_DIM + 1, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1],
    "<Q": [0, 1, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1],
    "<f": [0.0, -0.0, 1e-45, 2.0**40, 3e38, -3e38, float("inf"), float("-inf"), float("nan")],
    "<d": [0.0, 2.0**16, 1e300, float("inf"), float("nan")],
}
CONTEXTS = {"k": Context((rng.uniform(rng.seed_key(9), MAX_DIM) < 0.04).to(torch.uint8))}


@dataclass
class Summary:
    """What came of the frames."""

    frames: int = 0
    valid: int = 0
    in_context: int = 0  # of these, how many need a context
    past_checksum: int = 0
    payloads: Counter[str] = field(default_factory=Counter)  # decoded, by form
    sentences: Counter[str] = field(default_factory=Counter)  # refusals, without names and numbers
    memory_samples: int = 0
    worst_memory: float = 0.0  # share of the bound that was used
    seconds: float = 0.0

    def lines(self) -> list[str]:
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return [
            f"{self.frames} frames in {self.seconds:.0f} s ({1e6 * self.seconds / max(self.frames, 1):.0f} µs each)",
            f"{self.past_checksum} with a right checksum, {self.valid} valid ({self.in_context} in context), "
            f"{len(self.sentences)} kinds of refusal",
            "decoded: " + ", ".join(f"{name} {n}" for name, n in sorted(self.payloads.items())),
            f"memory: at most {self.worst_memory:.0%} of the bound in {self.memory_samples} samples; "
            f"the process never had more than {rss:.0f} MiB",
        ]


def memory_bound(length: int, max_dim: int) -> int:
    """Bytes that decoding a frame may take (docs/wire.md), from its length and the largest dim that is accepted."""
    payloads = length // 6
    entries = min(32 * length, max_dim * payloads)  # four signs can share a codeword of one bit
    return 2**20 + 16 * length + 64 * entries + 4096 * payloads


def seeds() -> list[bytes]:
    """Small frames of every form, value type and index code."""
    single = [encode({"c": payload}, FrameKind.DOWN, 3) for payload in _payloads()]
    known = [encode({"k": payload}, FrameKind.DOWN, 3, CONTEXTS) for payload in _known_payloads()]
    pairs = [
        encode(dict(zip("ab", pair, strict=True)), FrameKind.DOWN, 9)
        for pair in zip(_payloads()[::5], _payloads()[2::5], strict=False)
    ]
    return [*single, *known, *pairs, encode({}, FrameKind.STATE, 0)]


def mutated(data: bytes, other: bytes, random: np.random.Generator) -> bytes:
    """One to three changes to a frame; most get a right length and checksum again, to reach what lies behind them."""
    changed = bytearray(data)
    for _ in range(int(random.integers(1, 4))):
        _change(changed, other, random)
    if len(changed) >= HEADER_SIZE + 4 and random.random() < 0.9:
        changed[:5] = data[:5]
        changed[11:HEADER_SIZE] = struct.pack("<Q", len(changed) - HEADER_SIZE - 4)
        changed[-4:] = struct.pack("<I", zlib.crc32(changed[:-4]))
    return bytes(changed)


def run(frames: int, seed: int = 0, *, progress: bool = False) -> Summary:
    """Decode so many mutated frames; raises what is no WireError, and AssertionError for a broken rule."""
    random = np.random.default_rng(seed)
    starts, summary, began = seeds(), Summary(), time.perf_counter()
    for number in range(frames):
        picked = random.integers(len(starts), size=2)
        data = mutated(starts[picked[0]], starts[picked[1]], random)
        try:
            _try(data, number, summary)
        except BaseException:
            print(f"frame {number} of seed {seed}: {data.hex()}", file=sys.stderr)
            raise
        if progress and number % 100_000 == 99_999:
            print(f"{number + 1} frames, {time.perf_counter() - began:.0f} s", flush=True)
    summary.frames, summary.seconds = frames, time.perf_counter() - began
    return summary


def _try(data: bytes, number: int, summary: Summary) -> None:
    if number % MEMORY_EVERY == 0:
        _measure(data, summary)
    summary.past_checksum += len(data) > 4 and zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "little")
    try:
        frame = decode(data, max_dim=MAX_DIM, contexts=CONTEXTS)
    except WireError as error:
        summary.sentences[re.sub(r"'.*'|\".*\"|\[.*\]|[-\d.e+]+|inf|nan", "", str(error))] += 1
        return
    summary.valid += 1
    summary.in_context += "k" in frame.message and not _is_valid_without_contexts(data)
    for name, payload in frame.message.items():
        vector = payload.dense()
        assert vector.shape == (payload.dim,), f"part {name!r} has the shape {tuple(vector.shape)}"
        assert bool(vector.isfinite().all()), f"part {name!r} is not finite"
        summary.payloads[type(payload).__name__] += 1
        if number % ENCODE_EVERY == 0:  # what was decoded can be sent on, and is then the same
            contexts = CONTEXTS if payload.dim == MAX_DIM else {}
            again = encode({"k": payload}, FrameKind.DOWN, 0, contexts)
            assert len(again) == int(frame_nbytes({"k": payload}, contexts))
            sent_on = decode(again, max_dim=MAX_DIM, contexts=contexts).message["k"]
            assert torch.equal(sent_on.dense(), vector)


def _is_valid_without_contexts(data: bytes) -> bool:
    try:
        decode(data, max_dim=MAX_DIM)
    except WireError:
        return False
    return True


def _measure(data: bytes, summary: Summary) -> None:
    """The peak of NumPy's and Python's allocations, where any dim is accepted."""
    tracemalloc.start()
    try:
        decode(data, contexts=CONTEXTS)
    except WireError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    share = peak / memory_bound(len(data), 2**31)
    assert share <= 1, f"decoding {len(data)} bytes took {peak}"
    summary.memory_samples += 1
    summary.worst_memory = max(summary.worst_memory, share)


def _change(changed: bytearray, other: bytes, random: np.random.Generator) -> None:
    size = len(changed)
    if size < 2:
        changed += other
        return
    way = int(random.integers(8))
    front = min(size, HEADER_SIZE + 60)  # most of the structure is there
    if way <= 1:  # flipped bits, anywhere or at the front
        for at in random.integers(size if way == 0 else front, size=int(random.integers(1, 4))):
            changed[int(at)] ^= 1 << int(random.integers(8))
    elif way <= 3:  # an extreme number in place of a field, or of something
        layout = list(EXTREMES)[int(random.integers(len(EXTREMES)))]
        field_bytes = struct.pack(layout, EXTREMES[layout][int(random.integers(len(EXTREMES[layout])))])
        at = (
            int(random.integers(HEADER_SIZE, front)) if way == 2 and front > HEADER_SIZE else int(random.integers(size))
        )
        changed[at : at + len(field_bytes)] = field_bytes
    elif way == 4:  # cut off
        del changed[int(random.integers(size)) :]
    elif way == 5:  # longer
        changed[-4:-4] = random.bytes(int(random.integers(1, 20)))
    elif way == 6:  # a splice of two frames
        changed[int(random.integers(size)) :] = other[int(random.integers(len(other))) :]
    else:  # a run of bytes taken out or doubled
        start, stop = sorted(random.integers(size, size=2).tolist())
        changed[start:stop] = changed[start:stop] * int(random.choice([0, 2]))


def _payloads() -> list[Payload]:
    dim, kept = 150, 12
    key = rng.seed_key(1)
    support = rng.subset(key, dim, kept)
    bunched = torch.cat([torch.arange(150), 3000 + 7 * torch.arange(140)])
    full = rng.normal(key, dim).float()
    rotated = rotate(full, key, 32)
    signs = Levels(torch.zeros(290, dtype=torch.uint8), torch.ones(1), "sign")
    payloads: list[Payload] = [Dense(full.to(kind)) for kind in (torch.float32, torch.float16, torch.float64)]
    payloads += [Sparse(full[:kept].bfloat16(), support, dim), Sparse(full[:2], torch.tensor([7, 3999]), 4000)]
    payloads += [Sparse(signs, bunched, 4096), Nonzeros(full * (full > 1)), Seeded(full[:kept].half(), key, dim)]
    for values in _values(dim):
        payloads.append(Dense(values))
    for values in _values(kept):
        payloads.append(Sparse(values, support, dim))
    payloads += [Seeded(_levels("normal2", kept, 5), key, dim), Rotated(rotated.half(), key, dim, 32)]
    payloads += [Rotated(_levels("normal3", 160, 32), key, dim, 32), Rotated(_levels("sign", 256, 0), key, dim, 256)]
    payloads += [LowRank(full[:30], full[30:52], full[52:70], (10, (15, 11), 8), 2)]
    clients = torch.stack([full * (full > threshold) for threshold in (1.0, 1.5, 2.0)])
    payloads += [Relay(Nonzeros(clients), 0.3), Relay.of([payloads[4]] * 2, 0.5)]
    payloads += [Relay.of([Dense(_levels("uniform4", dim, 0)), Rotated(rotated, key, dim, 32), Dense(full)], 1.0)]
    return payloads


def _known_payloads() -> list[Payload]:
    """Supports that their context tells nearly, alone and in a relay."""
    often = CONTEXTS["k"].classes.nonzero().squeeze(-1)
    supports = [often[:70], often[rng.subset(rng.seed_key(2), len(often), 60)], often]
    payloads: list[Payload] = [Sparse(_levels("sign", len(each), 0), each, MAX_DIM) for each in supports]
    return [*payloads, Sparse(_numbers(1, 60)[0].half(), supports[1], MAX_DIM), Relay.of(payloads[:2], 0.5)]


def _values(count: int) -> list[Values]:
    bits = [(1, 0), (2, 5), (3, 0), (4, 50)]
    tables = [
        LevelTables(_codes(count, 1 << b), _numbers(-(-count // block) if block else 1, 1 << b), b, block)
        for b, block in bits
    ]
    numbers = rng.normal(rng.seed_key(3), count).float()
    powers = [Powers.of(x) for x in (numbers, numbers * (numbers > 0), (20 * numbers).exp2())]
    return [*(_levels(table, count, 40 * (i % 2)) for i, table in enumerate(TABLES)), *tables, *powers]


def _levels(table: str, count: int, block: int) -> Levels:
    scales = _numbers(1, -(-count // block) if block else 1)[0].abs()
    return Levels(_codes(count, len(TABLES[table].levels)), scales, table, block)


def _codes(count: int, size: int) -> Tensor:
    """Mostly in the middle, so that a Huffman code pays."""
    numbers = rng.normal(rng.seed_key(size), count) * size / 9 + size / 2
    return numbers.floor().clamp(0, size - 1).to(torch.uint8)


def _numbers(*shape: int) -> Tensor:
    return rng.normal(rng.seed_key(7), int(torch.Size(shape).numel())).float().reshape(shape)


def main() -> None:
    torch.set_num_threads(1)
    frames, seed = ([int(word) for word in sys.argv[1:]] + [FRAMES, 0][len(sys.argv) - 1 :])[:2]
    summary = run(frames, seed, progress=True)
    print("\n".join(summary.lines()))


if __name__ == "__main__":
    main()
