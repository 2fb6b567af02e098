"""Size and time of payloads on the wire, one thread.

python benchmarks/wire.py
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from fedcef.wire import Context, Dense, FrameKind, Levels, Payload, Powers, Sparse, decode, encode

DIM, MODEL, REPEATS = 1_000_000, 4_460_106, 15


def timed(payload: Payload, classes: Tensor | None = None) -> tuple[int, float, float]:
    """The frame's bytes, and the medians in ms of encoding and decoding it, perhaps with a context of these classes."""
    message = {"delta": payload}
    encode_s, decode_s = [], []
    for _ in range(REPEATS):
        ours, theirs = ({} if classes is None else {"delta": Context(classes)} for _ in range(2))  # nothing sorted yet
        began = time.perf_counter()
        frame = encode(message, FrameKind.UP, 0, ours)
        middle = time.perf_counter()
        decode(frame, contexts=theirs)
        encode_s.append(middle - began)
        decode_s.append(time.perf_counter() - middle)
    return len(frame), 1e3 * statistics.median(encode_s), 1e3 * statistics.median(decode_s)


def random_supports(generator: torch.Generator) -> None:
    print(f"Random supports of {DIM} float32 entries")
    print("kept     bits/index  entropy  encode ms  decode ms")
    for ratio in (0.3, 0.1, 0.01, 0.001):
        indices = torch.randperm(DIM, generator=generator)[: int(ratio * DIM)].sort().values
        size, encode_ms, decode_ms = timed(Sparse(torch.randn(len(indices), generator=generator), indices, DIM))
        bits = 8 * (size - 4 * len(indices)) / len(indices)
        entropy = -math.log2(ratio) - (1 - ratio) / ratio * math.log2(1 - ratio)
        print(f"{ratio:<8} {bits:10.2f} {entropy:8.2f} {encode_ms:10.2f} {decode_ms:10.2f}")


def updates(generator: torch.Generator) -> Iterator[tuple[str, Payload, int]]:
    """Updates of a model: a name, the payload, and how many entries it sends."""
    x = torch.randn(MODEL, generator=generator)
    for ratio in (0.01, 0.1):
        indices = x.abs().topk(int(ratio * MODEL)).indices.sort().values
        kept = x[indices]
        yield f"Top-{ratio:.0%} float32", Sparse(kept, indices, MODEL), len(kept)
        yield f"Top-{ratio:.0%} 4-bit levels", Sparse(four_bits(kept), indices, MODEL), len(kept)
        yield f"Top-{ratio:.0%} powers of two", Sparse(Powers.of(kept), indices, MODEL), len(kept)
    yield "all, 4-bit levels", Dense(four_bits(x)), MODEL
    yield "all, signs", Dense(Levels((x > 0).to(torch.uint8), torch.ones(1), "sign")), MODEL


def contexts(generator: torch.Generator) -> None:
    """Top-1% of a vector whose scale both sides know up to a factor, entry by entry."""
    print(f"\nTop-1% signs of {MODEL} parameters")
    print(f"{'':22} bytes     bits/index  encode ms  decode ms  together")
    known = torch.randn(MODEL, generator=generator).exp()
    x = known * torch.randn(MODEL, generator=generator)
    indices = x.abs().topk(MODEL // 100).indices.sort().values
    payload = Sparse(Levels((x[indices] > 0).to(torch.uint8), torch.ones(1), "sign"), indices, MODEL)
    for name, classes in (("plain", None), ("in context", Context.of(known).classes)):
        size, encode_ms, decode_ms = timed(payload, classes)
        bits, both = 8 * size / len(indices) - 1, encode_ms + decode_ms
        print(f"{name:22} {size:<9} {bits:10.2f} {encode_ms:10.1f} {decode_ms:10.1f} {both:9.1f}")


def four_bits(values: Tensor) -> Levels:
    scale = values.abs().max().reshape(1)
    return Levels((7 * values / scale + 7).round().to(torch.uint8), scale, "uniform4")


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    random_supports(generator)
    print(f"\nUpdates of {MODEL} parameters")
    print(f"{'':22} bytes     bits/entry  encode ms  decode ms  together")
    for name, payload, entries in updates(generator):
        size, encode_ms, decode_ms = timed(payload)
        both = encode_ms + decode_ms
        print(f"{name:22} {size:<9} {8 * size / entries:10.2f} {encode_ms:10.1f} {decode_ms:10.1f} {both:9.1f}")
    contexts(generator)


if __name__ == "__main__":
    main()
