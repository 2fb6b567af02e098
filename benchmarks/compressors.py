"""Compressors side by side: bits for an entry, the error they leave, and the time they take.

python benchmarks/compressors.py [--device cuda]

Vectors have the layout of the paper's CIFAR-10 network (4,460,106 entries), filled with normal, Laplace or Student-t3
numbers.  Bits are those of the payload of the first (`nbytes`); errors are |C(x) - x|²/|x|², one vector each; times are
medians of compressing the normal one, decoded, without encoding.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from fedcef.compressors import COMPRESSORS, Compressor
from fedcef.core import rng
from fedcef.core.layout import Layout
from fedcef.core.rng import Key, round_key
from fedcef.problems.models import MODELS

ROWS: list[tuple[str, dict[str, object]]] = [
    ("identity", {}),
    *(
        ("topk", {"ratio": 0.01, "values": v})
        for v in ("native", "float16", "bfloat16", "powers", "uniform8", "uniform4")
    ),
    *(("topk", {"ratio": 0.01, "values": v}) for v in ("log4", "log3", "log2", "uniform2", "ternary", "sign")),
    ("topk", {"ratio": 0.1}),
    ("topk", {"ratio": 0.1, "values": "uniform4"}),
    ("randk", {"ratio": 0.01}),
    ("randk", {"ratio": 0.01, "unbiased": True}),
    ("layerwise_topk", {"ratio": 0.01}),
    ("blockwise_topk", {"ratio": 0.01}),
    ("block_topk", {"ratio": 0.01}),
    ("threshold", {}),
    ("threshold", {"factor": 3.0}),
    ("stc", {"ratio": 0.01}),
    ("scaled_sign", {}),
    ("scaled_sign", {"block": 0}),
    ("one_bit", {}),
    ("three_lc", {}),
    ("three_lc", {"sparsity": 1.75}),
    ("terngrad", {}),
    ("terngrad", {"clip": 2.5}),
    ("terngrad", {"unbiased": True}),
    ("qsgd", {}),
    ("qsgd", {"norm": "max"}),
    ("qsgd", {"levels": 1}),
    ("qsgd", {"levels": 127}),
    ("qsgd", {"unbiased": True}),
    ("natural", {}),
    ("natural", {"unbiased": True}),
    ("drive", {}),
    ("drive", {"unbiased": True}),
    *(("eden", {"bits": bits}) for bits in (2, 3, 4)),
    ("powersgd", {"rank": 1}),
    ("powersgd", {}),
    ("powersgd", {"iterations": 2}),
]


def samples(dim: int) -> list[torch.Tensor]:
    key = rng.seed_key(0)
    uniform = rng.uniform(rng.fold(key, 1), dim) - 0.5
    normal, *others = (rng.normal(rng.fold(key, i), dim) for i in (2, 3, 4, 5))
    chi = torch.stack(others).square().mean(0).sqrt()
    laplace = -uniform.sign() * torch.log1p(-2 * uniform.abs())
    return [x.float() for x in (rng.normal(key, dim), laplace, normal / chi)]


def relative_error(compressor: Compressor, x: torch.Tensor, key: Key) -> float:
    decoded = compressor.compress(x, key).dense()
    return float((decoded - x).double().square().sum() / x.double().square().sum())


def median_ms(work: Callable[[], object], device: str, repeats: int) -> float:
    times = []
    for _ in range(repeats + 1):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    layout = Layout.of(dict(MODELS["cifar10_cnn"]((3, 32, 32), 10).named_parameters()))
    vectors = [x.to(options.device) for x in samples(layout.size)]
    key = round_key(0, 0, torch.tensor(0, device=options.device))
    print(f"{'compressor':44} {'q²':>9} {'ω':>7} {'bits':>7} {'normal':>8} {'laplace':>8} {'t3':>8} {'ms':>7}")
    for name, given in ROWS:
        compressor = COMPRESSORS[name](**given).fit(layout)
        label = name + "".join(f" {k}={v}" for k, v in given.items())
        q2, omega = compressor.contraction(layout.size), compressor.variance(layout.size)
        bounds = ["–" if b is None else f"{b:.4g}" if b < 0.9999 or b > 1 else f"1-{1 - b:.1e}" for b in (q2, omega)]
        bits = 8 * int(compressor.compress(vectors[0], key).nbytes()) / layout.size
        errors = " ".join(f"{relative_error(compressor, x, key):8.4f}" for x in vectors)
        took = median_ms(lambda c=compressor: c.compress(vectors[0], key).dense(), options.device, options.repeats)
        print(f"{label:44} {bounds[0]:>9} {bounds[1]:>7} {bits:7.3f} {errors} {took:7.1f}", flush=True)


if __name__ == "__main__":
    main()
