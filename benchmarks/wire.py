"""Size and time of sparse payloads on the wire: random supports of a vector of 10⁶ float32 entries, one thread.

python benchmarks/wire.py
"""

from __future__ import annotations

import math
import statistics
import time

import torch

from fedcef.wire import FrameKind, Sparse, decode, encode

DIM, REPEATS = 1_000_000, 15


def main() -> None:
    torch.set_num_threads(1)
    print("kept     bits/index  entropy  encode ms  decode ms   (medians)")
    for ratio in (0.3, 0.1, 0.01, 0.001):
        generator = torch.Generator().manual_seed(0)
        indices = torch.randperm(DIM, generator=generator)[: int(ratio * DIM)].sort().values
        message = {"delta": Sparse(torch.randn(len(indices), generator=generator), indices, DIM)}
        encode_s, decode_s = [], []
        for _ in range(REPEATS):
            began = time.perf_counter()
            frame = encode(message, FrameKind.UP, 0)
            middle = time.perf_counter()
            decode(frame)
            encode_s.append(middle - began)
            decode_s.append(time.perf_counter() - middle)
        bits = 8 * (len(frame) - 4 * len(indices)) / len(indices)
        entropy = -math.log2(ratio) - (1 - ratio) / ratio * math.log2(1 - ratio)
        times = [1e3 * statistics.median(times) for times in (encode_s, decode_s)]
        print(f"{ratio:<8} {bits:10.2f} {entropy:8.2f} {times[0]:10.2f} {times[1]:10.2f}")


if __name__ == "__main__":
    main()
