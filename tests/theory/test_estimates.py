"""Estimates of L and σ² where they are known."""

import pytest
import torch

from fedcef.problems.lasso import lasso
from fedcef.problems.models import MnistCNN
from fedcef.problems.problem import Problem
from fedcef.regularizers import L1
from fedcef.theory import Losses, largest_eigenvalue, minibatch_variance


@pytest.fixture(scope="module")
def quadratic():
    """f_i(w) = |X_i w - y_i|²/(2n): its Hessian is X_i'X_i/n everywhere."""
    return lasso(L1(0.01), num_clients=3, samples=20, dim=12, support=4, dtype=torch.float64)


def hessians(problem):
    inputs = problem.train.inputs.view(problem.num_clients, -1, problem.dim)
    return inputs.mT @ inputs / inputs.shape[1]


def test_the_curvature_of_a_quadratic_is_its_largest_eigenvalue(quadratic):
    found = Losses(quadratic).curvature(quadratic.z0, iterations=500, tolerance=1e-12)
    exact = hessians(quadratic)
    assert found.client == pytest.approx(float(torch.linalg.eigvalsh(exact).max()), rel=1e-6)
    assert found.average == pytest.approx(float(torch.linalg.eigvalsh(exact.mean(0)).max()), rel=1e-6)


def test_the_usual_tolerance_is_near_and_never_above(quadratic):
    found = Losses(quadratic).curvature(quadratic.z0)
    exact = float(torch.linalg.eigvalsh(hessians(quadratic)).max())
    assert 0.97 * exact <= found.client <= exact * (1 + 1e-12)


def test_negative_curvature_counts_by_its_size():
    a = torch.diag(torch.tensor([1.0, -5.0, 2.0], dtype=torch.float64))
    size = largest_eigenvalue(lambda v: a @ v, torch.zeros(3, dtype=torch.float64), 200, 1e-14)
    assert size == pytest.approx(5.0)


def test_no_curvature_is_zero():
    assert largest_eigenvalue(torch.zeros_like, torch.zeros(3), 5, 1e-3) == 0.0


def test_hessian_products_of_a_convolutional_network_match_differences_of_gradients():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        clients = [(torch.randn(4, 1, 8, 8).double(), torch.arange(4))]
        problem = Problem.build(MnistCNN((1, 8, 8), 10).double(), torch.nn.functional.cross_entropy, clients)
        v = torch.randn(problem.dim, dtype=torch.float64)
    losses, x, small = Losses(problem), problem.z0, 1e-7
    difference = (losses.gradients(x + small * v) - losses.gradients(x - small * v))[0] / (2 * small)
    torch.testing.assert_close(losses.hessian(0, x)(v), difference, rtol=1e-4, atol=1e-6)


def test_samples_limit_what_is_looked_at(quadratic):
    few = Losses(quadratic, samples=5)
    inputs, targets = quadratic.train.inputs[:5], quadratic.train.targets[:5]
    expected = 0.5 * (inputs @ quadratic.z0 - targets).square().mean()
    assert float(few.values(quadratic.z0)[0]) == pytest.approx(float(expected))


def test_the_variance_of_minibatches_is_that_of_single_samples_by_their_number(quadratic):
    x = quadratic.z0
    inputs = quadratic.train.inputs.view(3, -1, quadratic.dim)
    targets = quadratic.train.targets.view(3, -1)
    gradients = (inputs @ x - targets).unsqueeze(-1) * inputs
    exact = (gradients - gradients.mean(1, keepdim=True)).square().sum(-1).mean(1)  # σ² of every client
    for batch in (1, 10):
        draws = [minibatch_variance(quadratic, x, batch, seed) for seed in range(20)]
        assert sum(draws) / 20 == pytest.approx(float(exact.max()) / batch, rel=0.3)
    assert minibatch_variance(quadratic, x, 0) == 0.0
