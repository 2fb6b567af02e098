"""Methods for smooth problems with compression: exact relations between methods, and partial participation."""

from itertools import islice

import pytest
import torch

from fedcef.algorithms import (
    EF14,
    EF21,
    EF21BC,
    EF21SGDM,
    SCAFCOM,
    SCAFFOLD,
    SCALLION,
    EControl,
    EF21Prox,
    FedAvg,
    FedCEF,
    FedCOMGATE,
    FedEF,
    FedPAQ,
    Qsparse,
)
from fedcef.algorithms.local_steps import mean_gradient
from fedcef.compressors import Identity, RandK, TopK
from fedcef.core.rng import round_key
from fedcef.regularizers import L1

from .setting import Quadratics, participants, play, simulate

PROBLEM = Quadratics.random()
N = PROBLEM.num_clients
COMMON = {"local_lr": 0.02, "server_lr": 1.5, "local_steps": 4}
AT_ONE_POINT = {**COMMON, "regularizer": L1(0.1)}
ONE_STEP = {"local_lr": 0.1, "local_steps": 1, "regularizer": L1(0.1)}
TOP1, RAND2 = TopK(ratio=0.05), RandK(ratio=0.1)

compressors = pytest.mark.parametrize("compressor", [TOP1, RAND2, Identity()], ids=["top1", "rand2", "identity"])
mixings = pytest.mark.parametrize("mixing", [1.0, 0.3])


def same(ours, theirs, rounds=40, problem=PROBLEM):
    a, b = simulate(ours, problem, rounds), simulate(theirs, problem, rounds)
    for x, y in zip(a.points, b.points, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-12)
    return a, b


# Relations


@mixings
@compressors
def test_scafcom_is_fedcef_without_a_regularizer(compressor, mixing):
    ours, fedcef = same(*(kind(**COMMON, mixing=mixing, compressor=compressor) for kind in (SCAFCOM, FedCEF)))
    for part in ("c_i", "v_i"):
        torch.testing.assert_close(ours.clients[part], fedcef.clients[part], rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.replica["c"], fedcef.replica["c"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("algorithm", [SCAFCOM(**COMMON, mixing=1.0), FedCOMGATE(**COMMON)], ids=["scafcom", "comgate"])
def test_uncompressed_they_are_scaffold(algorithm):
    """SCAFFOLD, option II (Karimireddy et al. 2020), written out, and ours."""
    same(algorithm, SCAFFOLD(**COMMON))
    a, k = algorithm.local_lr, algorithm.local_steps
    x, c, c_i = PROBLEM.z0, torch.zeros_like(PROBLEM.z0), torch.zeros_like(PROBLEM.b)
    for point in simulate(algorithm, PROBLEM, 40).points:
        y = x.repeat(N, 1)
        for step in range(k):
            y = y - a * (PROBLEM.oracle(y, step) - c_i + c)
        fresh = c_i - c + (x - y) / (k * a)
        x = x + algorithm.server_lr * (y - x).mean(0)
        c, c_i = c + (fresh - c_i).mean(0), fresh
        torch.testing.assert_close(point, x, rtol=0, atol=1e-12)


@compressors
def test_fedcef_with_one_step_is_ef21_prox(compressor):
    same(FedCEF(**ONE_STEP, compressor=compressor), EF21Prox(**ONE_STEP, compressor=compressor), 60)


@mixings
@compressors
def test_fedcef_with_one_step_is_ef21_sgdm_with_a_prox(compressor, mixing):
    same(*(kind(**ONE_STEP, mixing=mixing, compressor=compressor) for kind in (FedCEF, EF21SGDM)), 60)


@pytest.mark.parametrize(
    ("kind", "option"),
    [(EF21Prox, {}), (EF21BC, {"down_ratio": 1.0}), (EF21SGDM, {"mixing": 1.0}), (EControl, {"feedback": 0.0})],
    ids=["prox", "bc", "sgdm", "econtrol"],
)
@compressors
def test_where_the_variants_are_ef21(kind, option, compressor):
    same(kind(**AT_ONE_POINT, **option, compressor=compressor), EF21(**AT_ONE_POINT, compressor=compressor))


@pytest.mark.parametrize("kind", [EF14, EF21, EControl])
def test_uncompressed_they_are_proximal_gradient_descent(kind):
    algorithm = kind(**AT_ONE_POINT)
    x = PROBLEM.z0
    for point in simulate(algorithm, PROBLEM, 40).points:
        x = algorithm.regularizer.prox(x - algorithm.step * PROBLEM.gradient(x), algorithm.step)
        torch.testing.assert_close(point, x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [FedEF, Qsparse, FedPAQ])
@pytest.mark.parametrize("composite", ["server_prox", "subgradient"])
def test_uncompressed_they_are_fedavg(kind, composite):
    same(kind(**AT_ONE_POINT, composite=composite), FedAvg(**AT_ONE_POINT, composite=composite))


@compressors
def test_scallion_that_scales_nothing_is_scafcom_without_momentum(compressor):
    same(SCALLION(**COMMON, scaling=1.0, compressor=compressor), SCAFCOM(**COMMON, mixing=1.0, compressor=compressor))


def test_scallion_with_scaled_randk_is_scafcom_with_plain_randk():
    """a·p/k = 1: the scaling undoes what makes Rand-k unbiased."""
    scallion = SCALLION(**COMMON, scaling=0.1, compressor=RandK(ratio=0.1, unbiased=True))
    same(scallion, SCAFCOM(**COMMON, mixing=1.0, compressor=RAND2))


@pytest.mark.parametrize(("kind", "scale"), [(EF14, 1.0), (EControl, None)])
@compressors
def test_the_point_without_the_error_moves_by_the_gradient(kind, scale, compressor):
    """The virtual iterate of error feedback: z - mean e_i (EControl: z - β·mean e_i) takes exact gradient steps."""
    algorithm = kind(**COMMON, compressor=compressor)
    z, virtual = PROBLEM.z0, PROBLEM.z0
    for replica, clients, _ in islice(play(algorithm, PROBLEM), 15):
        virtual = virtual - algorithm.step * PROBLEM.gradient(z)
        z = replica["z"]
        error = (scale or algorithm.step) * clients["e_i"].mean(0)
        torch.testing.assert_close(z - error, virtual, rtol=0, atol=1e-12)


def test_the_mean_gradient_takes_every_batch_once_and_writes_into_nothing():
    x, kept = torch.ones(3), torch.ones(3)
    batches = [torch.full((2, 3), float(k)) for k in range(4)]
    assert torch.equal(mean_gradient(x, lambda at, k: at + batches[k], 4), torch.full((2, 3), 2.5))
    assert torch.equal(x, kept)


# Some of the clients


def test_scafcom_with_some_of_the_clients_is_the_published_rule():
    algorithm = SCAFCOM(**COMMON, mixing=0.3, compressor=TOP1)
    a, k = algorithm.local_lr, algorithm.local_steps
    outcome = simulate(algorithm, PROBLEM, 40, size=2)
    x, c = PROBLEM.z0, torch.zeros_like(PROBLEM.z0)
    c_i, v_i = torch.zeros_like(PROBLEM.b), torch.zeros_like(PROBLEM.b)
    for t, point in enumerate(outcome.points):
        cohort, _ = participants(N, 2, t)
        y = x.repeat(N, 1)
        for step in range(k):
            y = y - a * (PROBLEM.oracle(y, step) - c_i + c)
        v_i[cohort] = (0.7 * v_i + 0.3 * ((x - y) / (a * k) + c_i - c))[cohort]
        d = TOP1.compress(v_i - c_i, round_key(0, t, torch.arange(N))).dense()[cohort]
        c_i[cohort] += d
        x = x - algorithm.step * (c + d.mean(0))
        c = c + 2 / N * d.mean(0)
        torch.testing.assert_close(point, x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [SCAFCOM, SCALLION, EF21, EF21BC, EF21SGDM, EControl])
@pytest.mark.parametrize("size", [1, 2, 6])
def test_the_server_knows_the_mean_of_the_clients_estimates(kind, size):
    outcome = simulate(kind(**COMMON, compressor=TOP1), PROBLEM, 50, size)
    known = outcome.replica["c"] if "c" in outcome.replica else outcome.server["g"]
    estimates = outcome.clients["c_i" if "c" in outcome.replica else "g_i"]
    torch.testing.assert_close(known, estimates.mean(0), rtol=0, atol=1e-12)
