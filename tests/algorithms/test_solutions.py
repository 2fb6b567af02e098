"""Known optima: where the methods end on ℓ1 least squares with exact gradients, in float64."""

from dataclasses import dataclass

import pytest
import torch

from fedcef.algorithms import FedAvg, FedCanon, FedCEF, FedDA, Zhang
from fedcef.compressors import RandK, TopK
from fedcef.regularizers import L1, Regularizer

from .setting import Quadratics, settle, simulate

PROBLEM = Quadratics.random()
LAM, K = 0.1, 5
ALPHA = 0.2 / (K * PROBLEM.smoothness)
COMMON = {"local_lr": ALPHA, "local_steps": K, "regularizer": L1(LAM)}


@pytest.mark.parametrize(
    "algorithm",
    [
        FedCEF(**COMMON, compressor=TopK(ratio=0.05)),  # Top-1 of 20
        FedCEF(**COMMON, compressor=TopK(ratio=0.05), mixing=0.3),
        FedCEF(**COMMON, compressor=TopK(ratio=0.05), downlink="dense"),
        FedCEF(**COMMON, compressor=RandK(ratio=0.1)),
        FedCEF(**COMMON, compressor=TopK(ratio=0.1), server_lr=2.0),
        Zhang(**COMMON),
    ],
    ids=["top1", "top1 mixing", "top1 dense", "randk", "server_lr", "zhang"],
)
def test_unbiased_methods_reach_a_stationary_point(algorithm):
    assert settle(algorithm, PROBLEM, 1500, 1e-10)[1] <= 1e-10


def test_the_solution_is_sparse_and_zeros_are_exact():
    z, _ = settle(FedCEF(**COMMON, compressor=TopK(ratio=0.05)), PROBLEM, 1500, 1e-12)
    g = PROBLEM.gradient(z)
    zero = z == 0
    assert 0 < int(zero.sum()) < len(z)
    assert bool((g[zero].abs() <= LAM + 1e-9).all())
    assert torch.allclose(g[~zero], -LAM * z[~zero].sign(), atol=1e-9)


@dataclass(frozen=True, eq=False)
class WrongLocalStep(Regularizer):
    """ℓ1 whose local proximal steps (all shorter than β) have one fixed length instead of the cumulative one."""

    weight: float
    global_step: float
    local_step: float

    def value(self, x):
        return L1(self.weight).value(x)

    def bounded_subgradient(self, dim):
        return L1(self.weight).bounded_subgradient(dim)

    def prox(self, x, step):
        is_local = step < self.global_step * (1 - 1e-9)
        return L1(self.weight).prox(x, self.local_step if is_local else step)


@pytest.mark.parametrize("wrong", ["α at every step", "β at every step"])
def test_other_local_prox_steps_miss_the_solution(wrong):
    """Negative control: only the cumulative step (k+1)α has an exact fixed point."""
    right = FedCEF(**COMMON, compressor=TopK(ratio=0.05))
    local_step = right.local_lr if wrong.startswith("α") else right.step
    broken = FedCEF(
        **{**COMMON, "regularizer": WrongLocalStep(LAM, right.step, local_step)}, compressor=TopK(ratio=0.05)
    )
    point = simulate(broken, PROBLEM, 400).points[-1]  # where the right one has long arrived
    assert PROBLEM.stationarity(point, right) > 1e-5


@pytest.mark.parametrize("method", [FedAvg, FedDA, FedCanon])
def test_biased_methods_stop_short_by_an_amount_that_halves_with_the_step(method):
    def bias(local_lr, rounds):
        algorithm = method(local_lr=local_lr, local_steps=K, regularizer=L1(LAM))
        point = simulate(algorithm, PROBLEM, rounds).points[-1]
        return PROBLEM.stationarity(point, algorithm)

    at_full, at_half = bias(2 * ALPHA, 500), bias(ALPHA, 1000)
    assert at_full > 1e-5
    assert at_half == pytest.approx(at_full / 2, rel=0.15)


def test_fedda_with_one_client_is_exact():
    alone = Quadratics(PROBLEM.a[:1], PROBLEM.b[:1])
    algorithm = FedDA(**COMMON)
    assert settle(algorithm, alone, 4000, 1e-8)[1] <= 1e-8
