"""Proximal steps with a length for every entry: brute force beside the formulas."""

import pytest
import torch

from fedcef.regularizers import L1, REGULARIZERS, Box, ElasticNet, L2Norm, OnParameters, Zero

from .cases import CASES, DIM

SAYS_SO = {name: h for name, h in CASES.items() if h.elementwise}


def test_which_ones_say_so():
    assert {name for name, kind in REGULARIZERS.items() if kind().elementwise} == {
        "zero",
        "l1",
        "elastic_net",
        "box",
        "l0",
    }
    assert OnParameters(ElasticNet(), torch.tensor([1, 2])).elementwise
    assert not OnParameters(L2Norm(), torch.tensor([1, 2])).elementwise


@pytest.mark.parametrize("h", SAYS_SO.values(), ids=SAYS_SO)
def test_each_entry_has_its_own_length(h):
    """argmin_u h(u) + Σ (u_j - x_j)²/(2 s_j), entry by entry on a fine grid."""
    g = torch.Generator().manual_seed(5)
    x = 1.5 * torch.randn(DIM, generator=g, dtype=torch.float64)
    steps = 0.02 + 1.5 * torch.rand(DIM, generator=g, dtype=torch.float64)
    found = h.prox(x, steps)
    grid = torch.arange(-10000, 10001, dtype=torch.float64) / 2000
    for j in range(DIM):
        others = found.repeat(len(grid), 1)
        others[:, j] = grid
        cost = h.value(others) + (grid - x[j]).square() / (2 * steps[j])
        own = h.value(found) + (found[j] - x[j]).square() / (2 * steps[j])
        assert float(own) <= float(cost.min()) + 1e-12
        assert abs(float(found[j] - grid[cost.argmin()])) <= 5e-4


@pytest.mark.parametrize("h", SAYS_SO.values(), ids=SAYS_SO)
def test_equal_lengths_are_one_length(h):
    x = torch.randn(3, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.equal(h.prox(x, torch.full((3, DIM), 0.7, dtype=torch.float64)), h.prox(x, 0.7))
    assert torch.equal(h.prox(x, torch.full((DIM,), 0.7, dtype=torch.float64)), h.prox(x, 0.7))


@pytest.mark.parametrize("h", [L1(0.3), ElasticNet(0.3, 0.5), Box(-0.4, 0.6), Zero()], ids=repr)
def test_whatever_the_lengths_the_fixed_points_are_the_same(h):
    """x = prox(x - s·g, s) with lengths s of every kind, where -g is a subgradient of h at x."""
    x = h.prox(torch.randn(DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64), 1.0)
    y = torch.randn(DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    g = x - y  # x = prox(y, 1), so y - x is a subgradient
    for seed in range(3):
        steps = 0.01 + 5 * torch.rand(DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        torch.testing.assert_close(h.prox(x - steps * g, steps), x, rtol=0, atol=1e-14)
