"""Plateaus and ties: total variation, fused lasso and SLOPE."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from fedcef.core.layout import Layout
from fedcef.regularizers import L1, SLOPE, TV, FusedLasso
from fedcef.regularizers.chain import solve_chains

from .cases import both_types, close, points, tensor


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    x=st.lists(st.integers(-6, 6).map(float) | st.floats(-5, 5, width=32), min_size=1, max_size=40),
    weight=st.sampled_from([0.01, 0.5, 1.0, 2.0, 30.0]),
)
def test_total_variation_by_its_optimality_condition(x, weight):
    """With z_i = Σ_{j<=i} (x_j - p_j): |z| <= weight, z ends at 0, and z_i = -weight·sign(p_{i+1} - p_i) at jumps."""
    x = tensor(*x)
    p = TV(1.0).prox(x, weight)
    z, jumps = (x - p).cumsum(0), p.diff().sign()
    assert float(z.abs().max()) <= weight + 1e-9
    assert float(z[-1]) == pytest.approx(0, abs=1e-9)
    steps = p.diff().abs() > 1e-9
    close(z[:-1][steps], -weight * jumps[steps], 1e-8)


@both_types
def test_plateaus_are_exact(dtype):
    x = (torch.arange(200) // 50 % 2 + 0.3 * points(1, dim=200)[0]).to(dtype)
    p = TV(1.0).prox(x, 3.0)
    jumps = p.diff().abs()
    assert bool(((jumps == 0) | (jumps > 1e-3)).all())
    assert 3 <= int((jumps != 0).sum()) <= 6
    close(p.sum().double(), x.sum().double(), 1e-5)
    flat = TV(1.0).prox(x, 1e4)
    assert len(flat.unique()) == 1
    assert float(flat[0]) == pytest.approx(float(x.mean()), rel=1e-5)


def test_chains_do_not_touch():
    x = points(3)
    whole = TV(0.5, lengths=(5, 1, 6)).prox(x, 0.8)
    each = [TV(0.5).prox(part, 0.8) for part in x.split([5, 1, 6], dim=-1)]
    close(whole, torch.cat(each, -1))
    fitted = TV().fit(Layout(("weight", "bias"), ((3, 2, 2), (5,))))
    assert fitted.lengths == (4, 4, 4, 5)


def test_fused_lasso_in_the_limit():
    x = points(5)
    close(FusedLasso(0.5, 0.0).prox(x, 0.8), L1(0.5).prox(x, 0.8))
    close(FusedLasso(0.0, 0.5).prox(x, 0.8), TV(0.5).prox(x, 0.8))


def test_bounds_of_the_variation_are_attained():
    zigzag = tensor(*([1, -1] * 4))
    for h in (TV(0.3), TV(0.3, lengths=(3, 5))):
        assert float(h.subgradient(zigzag).norm()) == pytest.approx(h.bounded_subgradient(8))


def test_many_levels_far_apart():
    """The worst case for the number of passes, on chains and as a descending sequence."""
    x = 2.0 ** torch.arange(200, dtype=torch.float64)
    expected = x.clone()
    expected[0] += 0.1
    expected[-1] -= 0.1
    close(TV(0.1).prox(x, 1.0), expected, 1e-9)
    no_cut = torch.zeros(200, dtype=torch.bool)
    close(solve_chains(x.flip(0), no_cut, 0.0, math.inf), x.flip(0))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    x=st.lists(st.integers(-6, 6).map(float) | st.floats(-5, 5, width=32), min_size=1, max_size=40),
    sequence=st.sampled_from(["linear", "bh"]),
    weight=st.sampled_from([0.1, 1.0, 4.0]),
)
def test_slope_by_isotonic_regression(x, sequence, weight):
    x = tensor(*x)
    h = SLOPE(weight, sequence=sequence, last=0.1)
    order = x.abs().argsort(descending=True)
    target = (x.abs()[order] - 0.7 * h.weights(len(x))).numpy()
    expected = torch.zeros_like(x)
    expected[order] = torch.from_numpy(isotonic_regression(target, increasing=False).x.clip(0))
    close(h.prox(x, 0.7), expected * x.sign(), 1e-10)


def test_slope_ties_entries_of_similar_size():
    p = SLOPE(2.0, last=0.0).prox(tensor(3, -2.9, 2.8, 0.1), 1.0)
    assert p[0] == -p[1] == p[2] != 0
    assert p[3] == 0.1  # λ_4 = 0


def test_slope_sequences():
    close(SLOPE(0.5, last=1.0).prox(points(5), 0.8), L1(0.5).prox(points(5), 0.8))
    assert SLOPE(2.0, last=0.25).weights(4).tolist() == [2.0, 1.5, 1.0, 0.5]
    close(SLOPE(2.0, sequence="bh", q=0.2).weights(2), tensor(2, 2 * 1.2815515655446004 / 1.6448536269514722), 1e-10)
    assert SLOPE(2.0).weights(1).tolist() == [2.0]
