"""Exact relations between methods, and invariants, in float64."""

import pytest
import torch

from fedcef.algorithms import CFedDA, FastFedDA, FedADMM, FedCEF, FedDR, FedMiD, Zhang
from fedcef.compressors import Identity, LayerwiseTopK, RandK, TopK
from fedcef.core.rng import round_key
from fedcef.regularizers import L1, Zero
from fedcef.wire import frame_paper_nbytes

from .setting import Quadratics, deploy, received, simulate

PROBLEM = Quadratics.random()


def close(a, b, tolerance=1e-12):
    return float((a - b).abs().max()) <= tolerance


@pytest.mark.parametrize("downlink", ["increment", "dense"])
@pytest.mark.parametrize("local_steps", [1, 2, 5, 10])
def test_fedcef_uncompressed_is_zhang(local_steps, downlink):
    common = {"local_lr": 0.02, "server_lr": 1.5, "local_steps": local_steps, "regularizer": L1(0.1)}
    ours = simulate(FedCEF(**common, mixing=1.0, compressor=Identity(), downlink=downlink), PROBLEM, 40)
    theirs = simulate(Zhang(**common), PROBLEM, 40)
    assert all(close(a, b) for a, b in zip(ours.points, theirs.points, strict=True))


@pytest.mark.parametrize("compressor", [TopK(ratio=0.05), TopK(ratio=0.2), RandK(ratio=0.2), Identity()])
@pytest.mark.parametrize("mixing", [1.0, 0.3])
def test_fedcef_with_one_local_step_is_ef21_prox(compressor, mixing):
    """EF21-Prox (Fatkhullin et al. 2021), with momentum EF21-SGDM:  v_i ← (1-η) v_i + η ∇f_i(x);
    g_i ← g_i + C(v_i - g_i);  x ← prox_{sh}(x - s mean g_i)."""
    step, regularizer = 0.1, L1(0.1)
    algorithm = FedCEF(local_lr=step, local_steps=1, mixing=mixing, compressor=compressor, regularizer=regularizer)
    ours = simulate(algorithm, PROBLEM, 60)

    x = PROBLEM.z0
    g_i, v_i = torch.zeros_like(PROBLEM.b), torch.zeros_like(PROBLEM.b)
    for t, point in enumerate(ours.points):
        v_i = (1 - mixing) * v_i + mixing * PROBLEM.oracle(x, 0)
        key = round_key(0, t, torch.arange(PROBLEM.num_clients))
        g_i = g_i + compressor.compress(v_i - g_i, key).dense()
        x = regularizer.prox(x - step * g_i.mean(0), step)
        assert close(point, x)


def test_fedcef_uncompressed_with_one_step_is_proximal_gradient():
    step, regularizer = 0.1, L1(0.1)
    ours = simulate(FedCEF(local_lr=step, local_steps=1, regularizer=regularizer), PROBLEM, 60)
    x = PROBLEM.z0
    for point in ours.points:
        x = regularizer.prox(x - step * PROBLEM.gradient(x), step)
        assert close(point, x)


@pytest.mark.parametrize("compressor", [TopK(ratio=0.1), RandK(ratio=0.1), LayerwiseTopK(ratio=0.2), Identity()])
@pytest.mark.parametrize("downlink", ["increment", "dense"])
def test_global_control_is_the_mean_of_the_local_ones(compressor, downlink):
    algorithm = FedCEF(
        local_lr=0.02, local_steps=4, mixing=0.5, compressor=compressor, regularizer=L1(0.05), downlink=downlink
    )
    outcome = simulate(algorithm, PROBLEM, 50)
    assert close(outcome.replica["c"], outcome.clients["c_i"].mean(0))
    assert (
        float(algorithm.diagnostics(outcome.replica, {"c_i": outcome.clients["c_i"].mean(0)})["control_gap"]) <= 1e-12
    )


def test_without_correction_the_drift_weight_is_all_that_differs():
    """At K = 1 the correction has not acted yet, so its weight does not matter; at K > 1 it does."""
    for local_steps, same in ((1, True), (4, False)):
        full, none = (
            simulate(
                FedCEF(local_lr=0.02, local_steps=local_steps, regularizer=Zero(), drift_weight=weight), PROBLEM, 5
            ).points[-1]
            for weight in (1.0, 0.0)
        )
        assert close(full, none) is same


def test_increment_replicas_are_bit_identical_in_float32():
    problem = Quadratics.random(dtype=torch.float32)
    algorithm = FedCEF(local_lr=0.02, local_steps=5, mixing=0.7, compressor=TopK(ratio=0.1), regularizer=L1(0.05))
    replicas, clients, server = deploy(algorithm, problem, 30)
    for replica in replicas:
        for name in ("z", "c"):
            assert torch.equal(replica[name], server[name])
    stacked = simulate(algorithm, problem, 30)
    assert torch.allclose(server["z"], stacked.replica["z"], atol=1e-5)
    mean = torch.stack([client["c_i"] for client in clients]).mean(0)
    assert torch.allclose(server["c"], mean, atol=1e-6)


def test_dense_and_increment_agree_up_to_the_reconstruction_error():
    """c = (z - z̃)/β loses about ulp(z)/β; both downlinks follow the same iterates otherwise."""
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
        problem = Quadratics.random(dtype=dtype)
        dense, increment = (
            simulate(
                FedCEF(
                    local_lr=0.02, local_steps=5, compressor=TopK(ratio=0.1), regularizer=L1(0.05), downlink=downlink
                ),
                problem,
                60,
            )
            for downlink in ("dense", "increment")
        )
        gap = max(float((a - b).abs().max()) for a, b in zip(dense.points, increment.points, strict=True))
        assert gap <= tolerance


@pytest.mark.parametrize(
    ("method", "up_bytes", "down_bytes"),
    [(FedMiD, 4, 4), (FastFedDA, 8, 8), (CFedDA, 4, 8), (FedDR, 4, 4), (FedADMM, 4, 4)],
)
def test_bytes_for_a_parameter(method, up_bytes, down_bytes):
    algorithm = method(local_steps=1, regularizer=L1(0.05))
    n, z0 = PROBLEM.num_clients, PROBLEM.z0
    replica, clients = algorithm.replica_init(z0), {k: v.repeat(n, 1) for k, v in algorithm.client_init(z0).items()}
    up, _ = algorithm.local(replica, clients, PROBLEM.oracle, round_key(0, 0, torch.arange(n)))
    down, _ = algorithm.server_step(algorithm.server_init(z0), replica, received(up))
    assert frame_paper_nbytes(up).tolist() == [up_bytes * len(z0)] * n
    assert int(frame_paper_nbytes(down)) == down_bytes * len(z0)
