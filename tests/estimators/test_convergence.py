"""At their defaults the estimators come to the minimum on the data sets that people try first, without a warning."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge

from fedcef.estimators import (
    FederatedElasticNet,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedRidge,
)

EXACT = {"tol": 1e-12, "max_iter": 10**6}


def by_target(y, count=4):
    """Clients that see neighbouring targets only."""
    names = np.empty(len(y), dtype=int)
    names[np.argsort(y, kind="stable")] = np.arange(len(y)) * count // len(y)
    return names


def raw_diabetes():
    data = load_diabetes(scaled=False)
    return data.data, data.target


def badly_scaled():
    X, y = make_regression(200, 20, noise=5, random_state=0)
    return X * 10.0 ** np.random.default_rng(0).integers(-4, 5, 20), y


def correlated():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((300, 1)) + 0.1 * generator.standard_normal((300, 20))
    return X, X[:, 0] - X[:, 1] + 0.1 * generator.standard_normal(300)


def wide():
    return make_regression(60, 200, n_informative=8, noise=2, random_state=1)


@pytest.mark.filterwarnings("error")  # a ConvergenceWarning would be one
@pytest.mark.parametrize(
    ("data", "ours", "theirs"),
    [
        (raw_diabetes, FederatedLasso(0.1), Lasso(0.1, **EXACT)),
        (raw_diabetes, FederatedRidge(), Ridge()),
        (badly_scaled, FederatedElasticNet(0.01), ElasticNet(0.01, **EXACT)),
        (correlated, FederatedLasso(0.01), Lasso(0.01, **EXACT)),
        (wide, FederatedLasso(0.01), Lasso(0.01, **EXACT)),
        (wide, FederatedElasticNet(0.1, l1_ratio=0.9), ElasticNet(0.1, l1_ratio=0.9, **EXACT)),
        (wide, FederatedRidge(), Ridge()),
    ],
    ids=lambda part: getattr(part, "__name__", type(part).__name__),
)
def test_regressions_are_scikit_learn_s(data, ours, theirs):
    X, y = data()
    ours.fit(X, y, clients=by_target(y))
    theirs.fit(X, y)
    spread = X.std(0)  # coefficients weigh as much as they move predictions
    np.testing.assert_allclose(ours.coef_ * spread, theirs.coef_ * spread, atol=1e-4 * abs(theirs.coef_ * spread).max())
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-4, atol=1e-4 * y.std())
    assert ours.n_iter_ < ours.rounds


def breast_cancer():
    return load_breast_cancer(return_X_y=True)


def wine():
    return load_wine(return_X_y=True)


def digits():
    X, y = load_digits(return_X_y=True)
    return X[:200], y[:200]


def slopes(model, X, y):
    """The gradient of C·Σ log-loss at the model, (C, d) and (C,), from its probabilities alone."""
    residuals = model.predict_proba(X) - (y[:, None] == model.classes_)
    residuals = residuals if len(model.classes_) > 2 else residuals[:, 1:]
    return model.C * residuals.T @ X, model.C * residuals.sum(0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("data", [breast_cancer, wine, digits], ids=lambda data: data.__name__)
def test_classes_are_at_the_minimum(data):
    """The conditions of a minimum, for raw features, with which saga does not get there in any time."""
    X, y = data()
    ours = FederatedLogisticRegression().fit(X, y, clients=by_target(y))
    by_coefficient, by_intercept = slopes(ours, X, y)
    scale = np.maximum(1, X.std(0) * len(y))
    used = ours.coef_ != 0
    assert abs(by_coefficient + np.sign(ours.coef_))[used].max() < 1e-5 * scale.max()
    assert ((abs(by_coefficient) - 1) / scale)[~used].max() < 1e-5
    assert abs(by_intercept).max() < 1e-5 * len(y)


def objective(model, X, y):
    """C·Σ log-loss + penalty/2·|w|²."""
    chance = model.predict_log_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return -model.C * chance.sum() + 0.5 * (model.coef_**2).sum()


@pytest.mark.parametrize("data", [breast_cancer, wine], ids=lambda data: data.__name__)
def test_ridge_for_classes_is_scikit_learn_s(data):
    X, y = data()
    X = (X - X.mean(0)) / X.std(0)
    ours = FederatedLogisticRegression(l1_ratio=0).fit(X, y, clients=by_target(y))
    theirs = LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert objective(ours, X, y) <= objective(theirs, X, y) * (1 + 1e-6)


def test_an_elastic_net_for_classes_is_scikit_learn_s():
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = LogisticRegression(l1_ratio=0.5, C=0.1, solver="saga", tol=1e-10, max_iter=5000, random_state=0)
        theirs.fit(X, y)
    ours = FederatedLogisticRegression(C=0.1, l1_ratio=0.5).fit(X, y, clients=by_target(y))
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert np.array_equal(ours.coef_ == 0, theirs.coef_ == 0)


def test_groups_are_used_for_all_classes_or_for_none():
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    ours = FederatedLogisticRegression(C=0.05, penalty="group").fit(X, y, clients=by_target(y))
    norms = np.linalg.norm(ours.coef_, axis=0)
    used = norms > 0
    assert 0 < used.sum() < 13
    assert (ours.coef_[:, used] != 0).all()
    by_coefficient, by_intercept = slopes(ours, X, y)
    np.testing.assert_allclose(by_coefficient[:, used], -(ours.coef_ / norms.clip(1e-300))[:, used], atol=1e-5)
    assert np.linalg.norm(by_coefficient[:, ~used], axis=0).max() <= 1 + 1e-5
    assert abs(by_intercept).max() < 1e-4
