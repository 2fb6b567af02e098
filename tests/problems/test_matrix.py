"""The synthetic low-rank problem."""

import pytest
import torch

from fedcef import FedCEF, TopK
from fedcef.problems.matrix import low_rank
from fedcef.regularizers import Nuclear, Zero
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.optimum import solve
from fedcef.simulation.simulation import Simulation

SMALL = {"num_clients": 4, "samples": 40, "size": 6, "rank": 2}


def rank(x):
    return int((torch.linalg.svdvals(x.reshape(6, 6)) > 1e-4).sum())


def test_shapes():
    problem = low_rank(Nuclear(0.1), **SMALL)
    assert problem.num_clients == 4
    assert problem.sizes.tolist() == [40] * 4
    assert problem.train.inputs.shape == (160, 6, 6)
    assert problem.train.targets.shape == (160,)
    assert problem.dim == 36
    assert problem.layout.names == ("weight",)
    assert problem.regularizer.matrices == ((0, 6, 6),)
    assert problem.test is None
    assert not problem.classifies
    assert not problem.z0.any()


def test_truth_has_the_rank():
    truth = low_rank(Zero(), **SMALL).truth
    assert truth.shape == (36,)
    assert torch.equal(truth.reshape(6, 6), torch.diag(torch.tensor([1.0, 1, 0, 0, 0, 0])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_types(dtype):
    problem = low_rank(Zero(), **SMALL, dtype=dtype)
    assert {problem.train.inputs.dtype, problem.train.targets.dtype, problem.z0.dtype, problem.truth.dtype} == {dtype}


def test_it_is_a_function_of_the_seed():
    first, again, other = low_rank(Zero(), **SMALL), low_rank(Zero(), **SMALL), low_rank(Zero(), **SMALL, seed=1)
    for part in (lambda p: p.train.inputs, lambda p: p.train.targets):
        assert torch.equal(part(first), part(again))
        assert not torch.equal(part(first), part(other))


def test_targets_are_the_truth_s_outputs_plus_noise():
    still = low_rank(Zero(), **SMALL, noise=0.0, dtype=torch.float64)
    traces = still.train.inputs[:, 0, 0] + still.train.inputs[:, 1, 1]
    assert torch.allclose(still.train.targets, traces, rtol=0, atol=1e-12)
    assert float(Evaluator(still, step=1.0).loss(still.truth)) == pytest.approx(0, abs=1e-20)
    noisy = low_rank(Zero(), num_clients=5, samples=2000, size=6, rank=2, noise=0.5, dtype=torch.float64)
    residual = noisy.train.targets - noisy.outputs(noisy.model, noisy.truth, noisy.train.inputs)
    assert float(residual.std()) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("heterogeneity", [0.0, 0.5, 2.0])
def test_clients_have_means_of_their_own(heterogeneity):
    problem = low_rank(
        Zero(), num_clients=20, samples=1000, size=6, rank=2, heterogeneity=heterogeneity, dtype=torch.float64
    )
    inputs = problem.train.inputs.view(20, 1000, 36)
    between = float(inputs.mean(1).var(0).mean())  # the samples' own scatter gives 0.001
    assert between == pytest.approx(heterogeneity**2 + 0.001, rel=0.15)
    assert float(inputs.var(1).mean()) == pytest.approx(1, rel=0.02)


def test_fedcef_finds_the_low_rank_optimum():
    problem = low_rank(Nuclear(0.2), **SMALL, heterogeneity=0.3, dtype=torch.float64)
    optimum, best = solve(problem)
    algorithm = FedCEF(
        local_lr=0.01, server_lr=2.0, local_steps=5, regularizer=problem.regularizer, compressor=TopK(ratio=0.2)
    )
    simulation = Simulation(problem, algorithm, batch_size=0)
    evaluate = Evaluator(problem, algorithm.step)
    start = evaluate(simulation.model())
    for _ in range(400):
        simulation.step()
    end = evaluate(simulation.model())
    assert end["objective"] < 0.6 * start["objective"]
    assert end["objective"] == pytest.approx(best, abs=1e-6)
    assert end["l2_error"] < 0.6 * start["l2_error"]
    assert rank(simulation.model()) == rank(optimum) < 6


def test_the_nuclear_norm_lowers_the_rank():
    def final(regularizer):
        problem = low_rank(regularizer, **SMALL, heterogeneity=0.3)
        algorithm = FedCEF(local_lr=0.01, server_lr=2.0, local_steps=5, regularizer=problem.regularizer)
        simulation = Simulation(problem, algorithm, batch_size=0)
        for _ in range(150):
            simulation.step()
        return simulation.model()

    assert rank(final(Zero())) == 6
    assert rank(final(Nuclear(0.2))) < 6
