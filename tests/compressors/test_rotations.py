"""DRIVE and EDEN: errors that do not depend on the vector's shape, and the bounds that hold for any."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from fedcef.compressors import COMPRESSORS, Drive, Eden
from fedcef.compressors.rotations import TYPICAL, WORST
from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.parts import make
from fedcef.core.rng import round_key
from fedcef.wire import TABLES, Rotated, WireError

BITS = (1, 2, 3, 4)


def mean_error(compressor, x, draws=64):
    decoded = compressor.compress(x.expand(draws, -1), round_key(0, 0, torch.arange(draws))).dense()
    return float(((decoded - x).double().square().sum(-1) / x.double().square().sum()).mean())


@pytest.mark.parametrize("bits", BITS[1:])
def test_the_bound_is_the_largest_error_that_the_moments_allow(bits):
    """z = √n·y_j/|x| is a sum of signs times numbers whose squares add up to 1, so E z² = 1, E|z| >= 1/√2 (Szarek), and
    E z^2k <= 1·3·5···(2k-1) (Khintchine).  A polynomial above the rounding error with its signs chosen accordingly
    bounds the mean error; the least such bound is a linear program."""
    levels = np.array([level for level in TABLES[f"normal{bits}"].levels if level > 0])
    z = np.concatenate([np.linspace(0, 8, 4001), np.linspace(8, 400, 2000)])
    error = ((z[:, None] - levels) ** 2).min(1)
    unit = z / 8  # so that powers are of one size
    columns = [unit, *(unit ** (2 * k) for k in range(6))]
    moments = [2**-0.5, 1, 1, 3, 15, 105, 945]
    weights = [m / 8**power for m, power in zip(moments, [1, 0, 2, 4, 6, 8, 10], strict=True)]
    rows = np.stack(columns, 1)
    size = rows.max(1)
    bounds = [(None, 0), (None, None), (None, None), *[(0, None)] * 4]
    found = linprog(weights, A_ub=-rows / size[:, None], b_ub=-error / size, bounds=bounds)
    assert found.status == 0
    assert found.fun == pytest.approx(WORST[bits], rel=0.01)
    assert found.fun <= WORST[bits]


@pytest.mark.parametrize("bits", BITS)
def test_few_equal_entries_are_within_the_bound(bits):
    for equal in (1, 2, 3, 4, 5, 7, 9, 16, 64):
        x = torch.zeros(256)
        x[rng.subset(rng.seed_key(equal), 256, equal)] = 1.0
        error = mean_error(Eden(bits=bits, block=256), x, 200)
        assert error <= WORST[bits] * 1.01
        if (equal, bits) == (2, 1):
            assert error == pytest.approx(0.5, rel=0.01)  # attained


@pytest.mark.parametrize("bits", BITS)
def test_spread_vectors_have_the_error_of_normal_numbers(bits):
    for x in (torch.ones(4096), torch.linspace(-1, 3, 4096), rng.normal(rng.seed_key(0), 4096).float()):
        assert mean_error(Eden(bits=bits, block=4096), x) == pytest.approx(TYPICAL[bits], rel=0.03)


def test_one_bit_of_eden_is_drive():
    x, key = rng.normal(rng.seed_key(0), 100).float(), round_key(0, 0, torch.tensor(0))
    assert Eden(bits=1).compress(x, key).encode() == Drive().compress(x, key).encode()


@pytest.mark.parametrize("bits", BITS)
def test_unbiased_for_spread_vectors(bits):
    x = rng.normal(rng.seed_key(1), 512).float()
    draws = 4000
    compressor = Eden(bits=bits, block=512, unbiased=True)
    found = compressor.compress(x.expand(draws, -1), round_key(0, 0, torch.arange(draws))).dense().double()
    noise = (found - x).square().sum(-1).mean() / x.double().square().sum()
    assert float(noise) == pytest.approx(1 / (1 - TYPICAL[bits]) - 1, rel=0.05)
    bias = (found.mean(0) - x).square().sum() / x.double().square().sum()
    assert float(bias) <= 2 * float(noise) / draws
    torch.testing.assert_close((found * x).sum(-1), x.double().square().sum().expand(draws), rtol=1e-4, atol=0)


def test_a_dominant_entry_hides_the_others():
    """Why no ω is stated: what is left out here is left out in every draw."""
    x = 1e-4 * torch.ones(256)
    x[7] = 1.0
    compressor = Drive(unbiased=True, block=256)
    found = compressor.compress(x.expand(400, -1), round_key(0, 0, torch.arange(400))).dense()
    assert float(found.mean(0)[:7].abs().max()) < 1e-6
    assert compressor.variance(256) is None
    assert compressor.contraction(256) is None


def test_short_vectors_have_short_blocks():
    payload = Drive().compress(torch.ones(5), round_key(0, 0, torch.tensor(0)))
    assert isinstance(payload, Rotated)
    assert payload.block == 8


def test_blocks_are_powers_of_two():
    with pytest.raises(ConfigError, match="power of two"):
        make("compressor", COMPRESSORS, {"name": "drive", "block": 1000})


def test_enormous_numbers_are_refused_by_the_encoder():
    payload = Drive().compress(torch.full((64,), 1e30), round_key(0, 0, torch.tensor(0)))
    assert bool(payload.dense().isfinite().all())
    with pytest.raises(WireError, match="smaller than"):
        payload.encode()
