"""How kept values travel: what each coder loses, and that sparsifiers lose no more than the rule says."""

from typing import get_args

import pytest
import torch

from fedcef.compressors import TopK
from fedcef.compressors.value_coders import CODERS, ValueCoder, coded, coding_error
from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.parts import make
from fedcef.wire import Values

from .setting import round_keys, vectors

every_coder = pytest.mark.parametrize("name", CODERS)
LEVELS = [name for name in CODERS if name.startswith(("uniform", "log", "ternary", "sign"))]
every_level_coder = pytest.mark.parametrize("name", LEVELS)


def decoded(values: torch.Tensor, name: str, block: int) -> torch.Tensor:
    sent = coded(values, name, block)
    return sent.dense() if isinstance(sent, Values) else sent


def relative(values: torch.Tensor, name: str, block: int) -> torch.Tensor:
    exact = values.double()
    size = exact.abs().amax(-1, keepdim=True)
    return ((decoded(values, name, block).double() - exact) / size).square().sum(-1) / (exact / size).square().sum(-1)


def hard_cases(count: int) -> torch.Tensor:
    """Vectors that are bad for some coder: equal entries, one-hot, halves, gaps between levels, zeros beside ones."""
    one = torch.zeros(count)
    one[0] = 1.0
    rows = [one, torch.ones(count)]
    rows += [torch.where(one == 1, 1.0, v) for v in (0.5, 0.499, 0.75, 0.0713, 1 / 14, 1 / 254, 2**-7, 2**-8, 1e-5)]
    rows += [torch.where(torch.arange(count) % 2 == 0, 1.0, v) for v in (0.0, 0.3, 0.6, 0.74, 0.76)]
    rows += [1.5 ** -torch.arange(count).float(), rng.normal(rng.seed_key(1), count).float()]
    rows += [torch.tan(3.14 * (rng.uniform(rng.seed_key(s), count) - 0.5)).float() for s in range(20)]
    return torch.stack(rows)


@every_coder
def test_no_coder_loses_more_than_it_says(name):
    tiny = 1e-6 if name != "float16" else 1e-4  # entries below the normal range of float16
    for size in (1.0,) if name == "float16" else (1.0, 1e30, 1e-30):
        for count in (1, 2, 5, 256, 300):
            errors = relative(size * hard_cases(count), name, 256)
            assert float(errors.max()) <= coding_error(name, count, 256) + tiny


def test_the_names_are_the_options():
    assert set(get_args(ValueCoder)) == set(CODERS)
    with pytest.raises(ConfigError, match=r"compressor.values is 'uniform3'"):
        make("compressor", {"topk": TopK}, {"name": "topk", "values": "uniform3"})


@every_level_coder
def test_blocks_have_scales_of_their_own(name):
    x = torch.cat([rng.normal(rng.seed_key(0), 50), 1e6 * rng.normal(rng.seed_key(1), 50)]).float()
    apart = decoded(x, name, 50)
    assert torch.equal(apart[:50], decoded(x[:50], name, 0))
    assert torch.equal(apart[50:], decoded(x[50:], name, 0))


@every_level_coder
def test_the_last_block_may_be_short(name):
    x = rng.normal(rng.seed_key(0), 53).float()
    assert torch.equal(decoded(x, name, 50)[50:], decoded(x[50:], name, 0))


@every_level_coder
def test_the_scale_is_the_best_for_the_levels(name):
    """What is decoded is the projection of x onto it: no other scale would be closer."""
    x = rng.normal(rng.fold(rng.seed_key(0), torch.arange(5)), 200)
    y = decoded(x, name, 0).double()
    torch.testing.assert_close((x * y).sum(-1), y.square().sum(-1), rtol=1e-6, atol=0)


def test_sign_is_the_mean_magnitude():
    x = torch.tensor([1.0, -2.0, 6.0, 0.0])
    assert decoded(x, "sign", 0).tolist() == [2.25, -2.25, 2.25, 2.25]
    assert decoded(x, "sign", 2).tolist() == [1.5, -1.5, 3.0, 3.0]


def test_powers_are_the_nearest():
    x = torch.tensor([1.0, 1.49, 1.51, -3.1, 0.0, 2.9, -1e-20])
    assert decoded(x, "powers", 0).tolist() == [1.0, 1.0, 2.0, -4.0, 0.0, 2.0, -(2.0**-67)]


@pytest.mark.parametrize("name", ["uniform8", "uniform4", "log4", "log3", "log2", "ternary", "sign"])
def test_more_levels_lose_less(name):
    """Mean losses of 256 kept normal numbers (Top-10%), as in docs/compressors.md."""
    expected = {"uniform8": 2e-5, "uniform4": 0.006, "log4": 0.03, "log3": 0.03, "log2": 0.027, "ternary": 0.031}
    x = rng.normal(rng.fold(rng.seed_key(3), torch.arange(8)), 16384)
    kept = TopK(ratio=0.1).keep(x).values
    assert float(relative(kept, name, 256).mean()) < expected.get(name, 0.031)


@pytest.mark.parametrize("ratio", [0.05, 0.3, 1.0])
@every_coder
def test_topk_and_a_coder_compose(name, ratio):
    """The error is (1-ρ) + d²ρ with ρ the share of energy kept, and at most 1 - (1-d²)k/p."""
    for kind in ("constant", "one-hot", "heavy-tailed", "gaussian", "few values", "one large"):
        x = vectors(torch.float64, 200)[kind]
        compressor = TopK(ratio=ratio, values=name, block=16)
        key = round_keys(1)[0]
        kept = TopK(ratio=ratio).compress(x, key)
        energy = x.square().sum()
        share = float(kept.values.square().sum() / energy)
        d2 = float(relative(kept.values, name, 16))
        error = float((compressor.compress(x, key).dense() - x).square().sum() / energy)
        assert error == pytest.approx(1 - share + d2 * share, abs=1e-6)
        k = compressor.count(200)
        assert compressor.contraction(200) == pytest.approx(1 - (1 - coding_error(name, k, 16)) * k / 200)
        assert error <= compressor.contraction(200) + (1e-4 if name == "float16" else 1e-6)
