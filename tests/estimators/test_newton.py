"""Newton steps in the features in use: second derivatives, the server's small problem, the bytes."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes

from fedcef.estimators import FederatedLasso, FederatedLogisticRegression, FederatedRidge
from fedcef.estimators import newton as module
from fedcef.estimators.design import DenseDesign
from fedcef.estimators.linear import Logistic, Softmax, Squares, Table
from fedcef.estimators.newton import curvature, in_use, minimise_model
from fedcef.estimators.penalties import ByFeature, ElasticNet, Strength
from fedcef.wire import Dense, frame_nbytes

X, Y = load_diabetes(return_X_y=True)
X, Y = X / X.std(0), (Y - Y.mean()) / Y.std()


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("link", [Squares(), Logistic(), Softmax()], ids=lambda link: type(link).__name__)
@pytest.mark.parametrize("intercept", [True, False])
def test_second_derivatives_are_those_of_autograd(link, intercept, monkeypatch):
    monkeypatch.setattr("fedcef.estimators.design.PIECE", 3)  # so that there are several
    outputs = 3 if isinstance(link, Softmax) else 1
    tables = [Table(normal(m, 4, seed=m), normal(m, outputs).gt(0).double(), normal(m).square()) for m in (5, 7)]
    design = DenseDesign.scaled(tables, centre=intercept)
    z = normal(outputs * 4 + (outputs if intercept else 0), seed=3)

    def loss(z):
        W, b = z[: outputs * 4].view(outputs, 4), z[outputs * 4 :]
        b = b if intercept else b.new_zeros(outputs)
        return sum((t.weights * link.losses(t.inputs @ W.T + b, t.targets)).sum() for t in design.tables)

    exact = torch.autograd.functional.hessian(loss, z)
    torch.testing.assert_close(curvature(design, link, z, (outputs, 4), torch.arange(len(z))), exact)
    some = torch.arange(0, len(z), 2)
    torch.testing.assert_close(curvature(design, link, z, (outputs, 4), some), exact[some][:, some])


WEIGHTS = torch.tensor([[0.3, 0.2, 0.0, 0.5, 0.4, 0.0, 0.0], [0.0, 0.1, 0.3, 0.0, 0.0, 0.2, 0.0]]).double()
PENALTIES = [ElasticNet(*WEIGHTS), ByFeature(2, *WEIGHTS[:, :3])]


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: type(penalty).__name__)
def test_penalties_bend_as_they_are(penalty):
    x = normal(7, seed=1)
    chosen = torch.tensor([0, 1, 3, 5, 6])

    def alone(mine):
        return penalty.value(x.index_copy(0, chosen, mine))

    first, second = penalty.bend(x, chosen)
    torch.testing.assert_close(first, torch.autograd.functional.jacobian(alone, x[chosen]))
    torch.testing.assert_close(second, torch.autograd.functional.hessian(alone, x[chosen]))
    # the proximal step is where the derivative of its own problem is 0
    step = 0.3
    moved = penalty.prox(x, step)
    inside = (moved != 0).nonzero().squeeze(-1)
    torch.testing.assert_close(
        penalty.bend(moved, inside)[0] + (moved - x)[inside] / step, torch.zeros(len(inside), dtype=torch.float64)
    )
    torch.testing.assert_close(penalty.prox(torch.stack([x, 2 * x]), step)[0], moved)
    assert float(penalty.value(moved) + (moved - x).square().sum() / (2 * step)) < float(penalty.value(x))


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: type(penalty).__name__)
def test_the_servers_problem_is_solved(penalty):
    """Badly conditioned, in some of the coefficients: the others stay."""
    root = normal(7, 7, seed=2) * torch.tensor([1e3, 1, 1, 1e-2, 1, 1, 1e-1], dtype=torch.float64)
    H, g, z = root.T @ root, 10 * normal(7, seed=3), 0.1 * normal(7, seed=4)
    chosen = torch.tensor([0, 1, 2, 3, 5, 6])
    u = minimise_model(z, g, H[chosen][:, chosen], penalty, chosen, 1e-9)
    x = z.index_copy(0, chosen, u)
    slope = g[chosen] + H[chosen][:, chosen] @ (u - z[chosen])
    step = 1 / float(torch.linalg.eigvalsh(H)[-1])
    again = penalty.prox(x.index_copy(0, chosen, u - step * slope), step)[chosen]
    assert float((u - again).norm()) <= 1e-9 * step * 1.01
    assert x[4] == z[4]


def test_in_use_is_what_is_or_would_be(monkeypatch):
    penalty = Strength(1.0).penalty(torch.ones(4, dtype=torch.float64), 1, intercept=True)
    z, g = torch.tensor([0.0, 0.5, 0.0, 0.0, 0.0]).double(), torch.tensor([0.9, 0.0, -1.5, 3.0, 0.1]).double()
    assert in_use(z, g, penalty, 0.1).tolist() == [1, 2, 3, 4]
    monkeypatch.setattr(module, "WIDEST", 2)
    assert in_use(z, g, penalty, 0.1).tolist() == [1, 3]


def test_a_ridge_is_one_step_and_its_bytes_are_counted():
    names = np.arange(len(Y)) % 3
    model = FederatedRidge(newton_after=0).fit(X, Y, clients=names)
    assert model.n_iter_ == 1
    before, after = model.history_.records

    def bytes_of(count, name):
        return int(frame_nbytes({name: Dense(torch.zeros(count, dtype=torch.float64))}))

    look = bytes_of(11, "gradient") + bytes_of(1, "number")
    assert after["wire_up_bytes"] - before["wire_up_bytes"] == 3 * (bytes_of(66, "curvature") + look)
    assert after["wire_down_bytes"] - before["wire_down_bytes"] == 3 * bytes_of(11, "point")


def test_rounds_alone_come_to_the_same():
    names = np.argsort(np.argsort(Y)) * 3 // len(Y)
    rounds = FederatedLasso(0.02, newton_after=None, tol=1e-6).fit(X, Y, clients=names)
    steps = FederatedLasso(0.02, newton_after=0, tol=1e-6).fit(X, Y, clients=names)
    np.testing.assert_allclose(steps.coef_, rounds.coef_, atol=1e-5)
    assert np.array_equal(steps.coef_ == 0, rounds.coef_ == 0)
    assert steps.n_iter_ < 10 < rounds.n_iter_
    assert steps.bytes_ < rounds.bytes_ / 4


def test_too_many_coefficients_are_left_to_rounds(monkeypatch):
    monkeypatch.setattr(module, "WIDEST", 3)
    model = FederatedRidge(newton_after=10, tol=1e-6).fit(X, Y)
    assert model.n_iter_ % 10 == 0
    assert model.n_iter_ > 10


def test_a_step_that_does_not_lead_down_is_shortened():
    """Labels that are nearly separable, far from the minimum: the whole Newton step would overshoot."""
    x = np.linspace(-1, 1, 40)[:, None] ** 3
    model = FederatedLogisticRegression(C=1e4, newton_after=0).fit(x, x[:, 0] + 0.02 * np.sin(40 * x[:, 0]) > 0)
    objectives = model.history_["objective"]
    assert all(after < before for before, after in itertools.pairwise(objectives))
    assert model.n_iter_ < 50
