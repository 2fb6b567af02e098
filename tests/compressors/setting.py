"""Compressors with their options, vectors of every kind, and keys: what the tests of compressors run over."""

import torch

from fedcef.compressors import COMPRESSORS, Compressor, Drive, Eden, Natural, PowerSGD, RandK, TopK
from fedcef.compressors.random_rounding import RandomRounding
from fedcef.compressors.value_coders import CODERS
from fedcef.core import rng
from fedcef.core.layout import Layout
from fedcef.core.rng import Key, round_key

DIM = 60
LAYOUT = Layout(("a", "b", "c", "d"), ((4, 9), (1,), (3,), (4, 5)))
DTYPES = [torch.float32, torch.float64]


def _with(name: str, **options) -> Compressor:
    return COMPRESSORS[name](**options).fit(LAYOUT)


CASES: dict[str, Compressor] = {
    **{name: _with(name) for name in COMPRESSORS},
    **{f"topk {values}": TopK(ratio=0.4, values=values, block=7) for values in CODERS},
    "randk uniform4": RandK(ratio=0.4, values="uniform4", block=7),
    "randk unbiased": RandK(unbiased=True),
    "layerwise_topk log3": _with("layerwise_topk", ratio=0.3, values="log3", block=4),
    "blockwise_topk short": _with("blockwise_topk", ratio=0.3, length=16, values="sign", block=4),
    "block_topk short": _with("block_topk", ratio=0.3, length=8),
    "block_topk coded": _with("block_topk", ratio=0.3, length=8, values="uniform8", block=0),
    "threshold low": _with("threshold", factor=0.5),
    "threshold high": _with("threshold", factor=9.0, values="bfloat16"),
    "stc dense": _with("stc", ratio=0.5),
    **{
        f"{name} {block}": _with(name, block=block)
        for name in ("scaled_sign", "one_bit", "three_lc")
        for block in (0, 7)
    },
    "three_lc sparse": _with("three_lc", sparsity=1.9, block=16),
    "terngrad one scale": _with("terngrad", block=0),
    "terngrad unbiased": _with("terngrad", block=7, unbiased=True),
    "terngrad clipped": _with("terngrad", clip=1.5, block=16),
    **{f"qsgd {s}": _with("qsgd", levels=s, block=16) for s in (1, 4, 127)},
    **{f"qsgd {s} unbiased": _with("qsgd", levels=s, block=16, unbiased=True) for s in (1, 4, 127)},
    "qsgd max": _with("qsgd", levels=3, norm="max", block=7),
    "qsgd max unbiased": _with("qsgd", levels=3, norm="max", block=0, unbiased=True),
    "natural unbiased": _with("natural", unbiased=True),
    "drive short": _with("drive", block=8),
    **{f"eden {bits}": _with("eden", bits=bits) for bits in (1, 3, 4)},
    "eden short": _with("eden", bits=3, block=4),
    "powersgd 1": _with("powersgd", rank=1),
    "powersgd twice": _with("powersgd", rank=1, iterations=2),
}


def vectors(dtype: torch.dtype, dim: int = DIM) -> dict[str, torch.Tensor]:
    gaussian = rng.normal(rng.seed_key(1), dim).to(dtype)
    return {
        "zero": torch.zeros(dim, dtype=dtype),
        "constant": torch.full((dim,), -0.3, dtype=dtype),
        "one-hot": torch.eye(dim, dtype=dtype)[dim // 2],
        "huge": gaussian * 1e30,
        "denormal": gaussian * torch.finfo(dtype).tiny * 1e-3,
        "heavy-tailed": torch.tan(3.1 * (rng.uniform(rng.seed_key(2), dim) - 0.5)).to(dtype),
        "gaussian": gaussian,
        "few values": (torch.arange(dim) % 3 - 1).to(dtype),
        "one large": torch.where(torch.arange(dim) == 3, 1.0, 1 / (dim**0.5 + 1)).to(dtype),
        "two large": (torch.arange(dim) < 2).to(dtype),
    }


def narrow(compressor: Compressor) -> bool:
    """Whether what is sent is float32 at most: a scale, an exponent, a rotation."""
    return compressor.compress(
        torch.ones(DIM, dtype=torch.float64), round_key(0, 0, torch.tensor(0))
    ).dense().dtype != (torch.float64)


def inputs(compressor: Compressor, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The vectors that a compressor can be expected to handle."""
    x = vectors(dtype)
    if narrow(compressor):  # numbers that float32 does not have become zero
        x["denormal"] = vectors(torch.float32)["denormal"].to(dtype)
    return x


def round_keys(count: int) -> list[Key]:
    return [round_key(0, t, torch.tensor(0)) for t in range(count)]


def is_random(compressor: Compressor) -> bool:
    """Whether C(x) depends on the key."""
    random = isinstance(compressor, RandK | PowerSGD | Drive | Eden | RandomRounding)
    return random or (isinstance(compressor, Natural) and compressor.unbiased)


def draws(compressor: Compressor, x: torch.Tensor, count: int) -> torch.Tensor:
    """C of every row of x, (m, p), as often: (count, m, p), each draw its own."""
    if isinstance(compressor, RandK | PowerSGD):  # in a round all clients draw the same
        keys = [round_key(0, t, torch.arange(len(x))) for t in range(count)]
        return torch.stack([compressor.compress(x, key).dense() for key in keys])
    rows = x.expand(count, *x.shape).reshape(-1, x.shape[-1])
    return compressor.compress(rows, round_key(0, 0, torch.arange(len(rows)))).dense().reshape(count, *x.shape)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b) and torch.equal(a.signbit(), b.signbit())
