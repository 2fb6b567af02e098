"""Methods for smooth problems with compression: where they end, with exact gradients, in float64."""

import pytest
import torch

from fedcef.algorithms import (
    EF14,
    EF21,
    EF21BC,
    EF21SGDM,
    SCAFCOM,
    SCALLION,
    EControl,
    EF21Prox,
    FedAvg,
    FedCOMGATE,
    FedPAQ,
    Qsparse,
)
from fedcef.compressors import RandK, TopK
from fedcef.regularizers import L1

from .setting import Quadratics, settle, simulate

PROBLEM = Quadratics.random()
TOP1, RAND2 = TopK(ratio=0.05), RandK(ratio=0.1)
K = 5
ALPHA = 0.2 / (K * PROBLEM.smoothness)
SHORT = {"local_lr": ALPHA, "local_steps": K}


def distance(algorithm, rounds, last=1):
    """|G| at the last point, or the largest of the last few."""
    points = simulate(algorithm, PROBLEM, rounds).points
    return max(PROBLEM.stationarity(z, algorithm) for z in points[-last:])


@pytest.mark.parametrize(
    "algorithm",
    [
        EF21(**SHORT, compressor=TOP1),
        EF21(**SHORT, compressor=RAND2),
        EF21SGDM(**SHORT, compressor=TOP1),
        EF21BC(**SHORT, compressor=TOP1, down_ratio=0.05),
        SCAFCOM(**SHORT, compressor=TOP1),
        SCAFCOM(**SHORT, compressor=RAND2, mixing=0.5),
        SCALLION(**SHORT, compressor=RandK(ratio=0.1, unbiased=True), scaling=0.1),
        SCALLION(**SHORT, compressor=TOP1, scaling=0.5),
        EControl(**SHORT, compressor=TOP1, feedback=0.02),
        EControl(**SHORT, compressor=RAND2, feedback=0.02),
        FedCOMGATE(**SHORT, compressor=TopK(ratio=0.2)),
        FedCOMGATE(**SHORT, compressor=RandK(ratio=0.75, unbiased=True)),
        EF14(**SHORT, compressor=RAND2),
    ],
    ids=lambda a: f"{type(a).__name__} {type(a.compressor).__name__}",
)
def test_smooth_problems_are_solved(algorithm):
    assert settle(algorithm, PROBLEM, 2000, 1e-8)[1] <= 1e-8


@pytest.mark.parametrize(
    "kind",
    [EF21Prox, EF21BC, EF21SGDM, lambda **o: EControl(**o, feedback=0.02)],
    ids=["prox", "bc", "sgdm", "econtrol"],
)
def test_methods_without_local_steps_solve_composite_problems(kind):
    algorithm = kind(**SHORT, compressor=TOP1, regularizer=L1(0.1))
    assert settle(algorithm, PROBLEM, 2000, 1e-8)[1] <= 1e-8


@pytest.mark.parametrize(
    "algorithm",
    [
        EF21(**SHORT, compressor=TOP1),
        EF21SGDM(**SHORT, compressor=TOP1, mixing=0.5),
        EF21BC(**SHORT, compressor=TOP1),
        EControl(**SHORT, compressor=TOP1, feedback=0.02),
        SCAFCOM(**SHORT, compressor=TOP1, mixing=0.5),
        SCALLION(**SHORT, compressor=RandK(ratio=0.1, unbiased=True)),
    ],
    ids=lambda a: type(a).__name__,
)
def test_some_of_the_clients_still_solve_smooth_problems(algorithm):
    assert settle(algorithm, PROBLEM, 3500, 1e-8, size=2)[1] <= 1e-8


@pytest.mark.parametrize("kind", [SCAFCOM, lambda **o: SCALLION(**o, scaling=1.0)], ids=["scafcom", "scallion"])
def test_one_prox_a_round_leaves_a_bias_that_halves_with_the_step(kind):
    def bias(local_lr, rounds):
        return distance(kind(local_lr=local_lr, local_steps=K, compressor=TOP1, regularizer=L1(0.1)), rounds)

    at_full, at_half = bias(2 * ALPHA, 300), bias(ALPHA, 600)
    assert at_full > 1e-5
    assert at_half == pytest.approx(at_full / 2, rel=0.15)


@pytest.mark.parametrize("kind", [EF14, Qsparse])
def test_memories_of_steps_leave_a_neighbourhood_that_shrinks_with_the_step(kind):
    at_full, at_half = (
        distance(kind(local_lr=share * ALPHA, local_steps=K, compressor=TOP1), int(500 / share), last=200)
        for share in (1, 0.5)
    )
    assert at_full > 0.1
    assert at_half == pytest.approx(at_full / 2, rel=0.25)


@pytest.mark.parametrize("kind", [EF14, Qsparse])
def test_memories_of_steps_are_exact_for_one_client(kind):
    alone = Quadratics(PROBLEM.a[:1], PROBLEM.b[:1])
    assert settle(kind(**SHORT, compressor=TOP1), alone, 4000, 1e-8)[1] <= 1e-8


@pytest.mark.parametrize(
    "algorithm",
    [
        Qsparse(**SHORT, compressor=RAND2),
        FedPAQ(**SHORT, compressor=RandK(ratio=0.1, unbiased=True)),
    ],
    ids=lambda a: type(a).__name__,
)
def test_with_one_random_support_for_all_the_limit_is_fedavg_s(algorithm):
    limit = simulate(FedAvg(**SHORT), PROBLEM, 600).points[-1]
    torch.testing.assert_close(simulate(algorithm, PROBLEM, 1200).points[-1], limit, rtol=0, atol=1e-8)
    assert PROBLEM.stationarity(limit, algorithm) > 1e-3  # which is not the solution


def test_fedpaq_with_a_biased_compressor_misses_by_what_no_step_cures():
    for share in (1, 0.25):
        assert distance(FedPAQ(local_lr=share * ALPHA, local_steps=K, compressor=TOP1), int(200 / share)) > 1


@pytest.mark.parametrize(
    "algorithm",
    [
        SCALLION(local_lr=ALPHA / 16, local_steps=K, scaling=0.21, compressor=RandK(ratio=0.1, unbiased=True)),
        FedCOMGATE(local_lr=ALPHA / 16, local_steps=K, compressor=RandK(ratio=0.4, unbiased=True)),
        Qsparse(local_lr=ALPHA / 16, local_steps=K, compressor=RandK(ratio=0.4, unbiased=True)),
    ],
    ids=lambda a: type(a).__name__,
)
def test_memories_diverge_with_too_much_noise_at_any_step(algorithm):
    """As their docstrings say: a > 2k/p, ω > 1, and a C that is no contraction."""
    state = simulate(algorithm, PROBLEM, 1200).clients
    assert not float(max(table.abs().max() for table in state.values())) < 1e6
