"""The synthetic lasso problem."""

import pytest
import torch

from fedcef.problems.lasso import half_mean_square, lasso
from fedcef.regularizers import L1, Zero

SMALL = {"num_clients": 5, "samples": 40, "dim": 30, "support": 7}


def test_shapes():
    h = L1(0.1)
    problem = lasso(h, **SMALL)
    assert problem.num_clients == 5
    assert problem.sizes.tolist() == [40] * 5
    assert problem.starts.tolist() == [0, 40, 80, 120, 160]
    assert problem.train.inputs.shape == (200, 30)
    assert problem.train.targets.shape == (200,)
    assert problem.dim == 30
    assert problem.layout.names == ("weight",)
    assert problem.regularizer is h
    assert problem.test is None
    assert not problem.classifies


def test_truth_is_one_on_its_support():
    problem = lasso(Zero(), **SMALL)
    assert problem.truth.tolist() == [1.0] * 7 + [0.0] * 23


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_types(dtype):
    problem = lasso(Zero(), **SMALL, dtype=dtype)
    assert {problem.train.inputs.dtype, problem.train.targets.dtype, problem.z0.dtype, problem.truth.dtype} == {dtype}


def test_it_is_a_function_of_the_seed():
    first, again, other = lasso(Zero(), **SMALL), lasso(Zero(), **SMALL), lasso(Zero(), **SMALL, seed=1)
    for part in (lambda p: p.train.inputs, lambda p: p.train.targets, lambda p: p.z0):
        assert torch.equal(part(first), part(again))
        assert not torch.equal(part(first), part(other))


def test_targets_are_the_truth_s_outputs_plus_noise():
    still = lasso(Zero(), **SMALL, noise=0.0, dtype=torch.float64)
    assert torch.allclose(still.train.targets, still.train.inputs @ still.truth, rtol=0, atol=1e-12)
    noisy = lasso(Zero(), num_clients=5, samples=2000, dim=10, support=4, noise=0.5, dtype=torch.float64)
    residual = noisy.train.targets - noisy.train.inputs @ noisy.truth
    assert float(residual.std()) == pytest.approx(0.5, rel=0.05)
    assert abs(float(residual.mean())) < 0.03


def test_clients_have_means_of_their_own_and_a_common_covariance():
    problem = lasso(Zero(), num_clients=20, samples=2000, dim=6, support=3, dtype=torch.float64)
    inputs = problem.train.inputs.view(20, 2000, 6)
    means = inputs.mean(1)
    between = means.var(0)  # of 20 draws from N(0, 1): 0.0005 would be what the samples' own scatter gives
    assert float(between.min()) > 0.3
    assert float(between.max()) < 3
    centred = (inputs - means.unsqueeze(1)).reshape(-1, 6)
    position = torch.arange(6)
    expected = 0.5 ** (position - position.unsqueeze(-1)).abs()
    assert torch.allclose(centred.T @ centred / len(centred), expected.double(), rtol=0, atol=0.03)


def test_the_start_is_random():
    z0 = lasso(Zero(), num_clients=2, samples=2, dim=2000, support=1).z0
    assert float(z0.mean()) == pytest.approx(0, abs=0.1)
    assert float(z0.std()) == pytest.approx(1, abs=0.1)


def test_the_loss_is_half_the_mean_square():
    assert float(half_mean_square(torch.tensor([3.0, 1.0]), torch.tensor([1.0, 2.0]))) == 1.25
    problem = lasso(Zero(), **SMALL, dtype=torch.float64)
    batch = problem.client_samples(2)
    value = problem.loss(problem.outputs(problem.model, problem.z0, batch.inputs), batch.targets)
    assert torch.allclose(value, (batch.inputs @ problem.z0 - batch.targets).square().sum() / 80)
