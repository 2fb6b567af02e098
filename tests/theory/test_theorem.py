"""Theorem 1's formulas against numbers worked out by hand."""

import math

import pytest

from fedcef.theory import Setting, Start, compute_bound

# η = 1/2, q = 1/2, L = 2, α = 0.0001, η_g = 10, K = 5, N = 4:  β = 0.005
SETTING = Setting(
    smoothness=2.0, contraction=0.5, mixing=0.5, local_lr=1e-4, server_lr=10.0, local_steps=5, num_clients=4
)


def test_limits_by_hand():
    assert SETTING.step == pytest.approx(0.005)
    assert SETTING.largest_step == pytest.approx(0.25 / 50)
    assert SETTING.least_server_lr == pytest.approx(math.sqrt(16 * 0.25 + 161 * 0.25) / (5 * 0.25))  # 5.32


def test_the_least_server_step_is_2_66_whatever_is_chosen():
    """At η = 1 without compression: the paper's experiments, with η_g = 1, never meet the condition."""
    best = Setting(
        smoothness=1.0, contraction=0.0, mixing=1.0, local_lr=0.1, server_lr=1.0, local_steps=1, num_clients=1
    )
    assert best.least_server_lr == pytest.approx(math.sqrt(177) / 5)
    assert best.largest_step == pytest.approx(1 / 25)


def test_limits_of_top_k_as_in_the_docs():
    for ratio, rate, step in ((0.1, 49.5, 1.05e-4), (0.01, 506, 1.0e-6)):
        setting = Setting(
            smoothness=1.0,
            contraction=math.sqrt(1 - ratio),
            mixing=1.0,
            local_lr=0.1,
            server_lr=1.0,
            local_steps=1,
            num_clients=10,
        )
        assert setting.least_server_lr == pytest.approx(rate, rel=2e-3)
        assert setting.largest_step == pytest.approx(step, rel=1e-2)


def test_factors_by_hand():
    # 17·0.5/4 = 2.125;  14·0.25/0.5 = 7;  140·0.125/0.25 = 70
    assert SETTING.stochastic_factor == pytest.approx(6.7 * 79.125)
    # 161·0.25/0.25 = 161
    assert SETTING.approximation_factor == pytest.approx(18.4 / 0.15 * 177)


def test_the_bound_by_hand():
    start = Start(gap=3.0, gradient=2.0, client_gradients=5.0)
    # Ψ⁰ = 3 + 8·0.005/0.5·2 + 70·0.5·0.005/0.25·5 = 3 + 0.16 + 3.5
    assert start.potential(SETTING) == pytest.approx(6.66)
    promised = compute_bound(SETTING, start, rounds=100, noise=0.3, subgradient=0.7)
    assert promised.start == pytest.approx(6.66 / (0.15 * 0.005 * 100))
    assert promised.noise == pytest.approx(6.7 * 79.125 * 0.3 / 5)
    assert promised.decoupling == pytest.approx(18.4 / 0.15 * 177 * (2 * 0.005 * 0.7 / 10) ** 2)
    assert promised.total == pytest.approx(promised.start + promised.noise + promised.decoupling)
