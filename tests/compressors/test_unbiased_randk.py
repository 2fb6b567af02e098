"""Rand-k times p/k: unbiased, and no contraction."""

import pytest
import torch

from fedcef.compressors import COMPRESSORS, RandK
from fedcef.core import rng
from fedcef.core.parts import make
from fedcef.core.rng import round_key
from fedcef.wire import FrameKind, Seeded, decode, encode

DIM, DRAWS = 60, 1000
X = torch.tan(3.1 * (rng.uniform(rng.seed_key(2), DIM) - 0.5))  # heavy tails
KEYS = [round_key(0, t, torch.tensor(0)) for t in range(DRAWS)]


def test_it_is_plain_randk_times_p_over_k():
    for ratio in (0.01, 0.1, 0.3, 1.0):
        plain, scaled = RandK(ratio=ratio), RandK(ratio=ratio, unbiased=True)
        factor = DIM / plain.count(DIM)
        for key in KEYS[:10]:
            assert torch.equal(scaled.compress(X, key).dense(), factor * plain.compress(X, key).dense())


def test_it_is_unbiased_with_the_variance_that_it_claims():
    compressor = RandK(ratio=0.25, unbiased=True)
    draws = torch.stack([compressor.compress(X, key).dense() for key in KEYS])
    omega = DIM / 15 - 1
    error = (draws.mean(0) - X).abs()
    assert bool((error <= 5 * X.abs() * (omega / DRAWS) ** 0.5).all())
    noise = (draws - X).square().sum(-1) / X.square().sum()
    assert float(noise.mean()) == pytest.approx(omega, abs=float(5 * noise.std() / DRAWS**0.5))
    plain = torch.stack([RandK(ratio=0.25).compress(X, key).dense() for key in KEYS])
    assert float((plain.mean(0) - 0.25 * X).norm()) < 0.1 * float(X.norm())  # unscaled, it keeps a quarter


def test_it_is_a_contraction_only_where_it_keeps_everything():
    assert RandK(ratio=0.5, unbiased=True).contraction(DIM) is None
    assert RandK(ratio=1.0, unbiased=True).contraction(DIM) == 0
    assert RandK(ratio=0.1, unbiased=True).contraction(1) == 0
    assert RandK(ratio=0.5).contraction(DIM) == 0.5


def test_values_are_scaled_before_they_are_rounded_and_cost_the_same():
    plain, scaled = (RandK(ratio=0.3, values="float16", unbiased=s).compress(X.float(), KEYS[0]) for s in (False, True))
    exact = RandK(ratio=0.3, unbiased=True).compress(X.float(), KEYS[0])
    assert isinstance(scaled, Seeded)
    assert torch.equal(scaled.values, exact.values.half())
    assert int(scaled.nbytes()) == int(plain.nbytes()) == len(scaled.encode())
    received = decode(encode({"x": scaled}, FrameKind.UP, 0)).message["x"]
    assert torch.equal(received.dense(), scaled.dense())


def test_a_mean_over_clients_is_compressed_as_one_vector():
    """All clients draw the same support, so C is linear over them; their noise does not average out."""
    table = rng.normal(rng.fold(rng.seed_key(3), torch.arange(7)), DIM)
    compressor = RandK(ratio=0.1, unbiased=True)
    mean = compressor.compress(table, round_key(0, 0, torch.arange(7))).dense().mean(0)
    torch.testing.assert_close(mean, compressor.compress(table.mean(0), KEYS[0]).dense())


def test_it_is_an_option():
    assert make("compressor", COMPRESSORS, {"name": "randk"}).unbiased is False
    assert make("compressor", COMPRESSORS, {"name": "randk", "unbiased": True}).unbiased is True
