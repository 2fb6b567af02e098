"""The estimators: the same minimum as scikit-learn's, however the samples are spread over clients."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import scale

from fedcef import TopK
from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.estimators import FederatedLasso, FederatedLogisticRegression
from fedcef.estimators.linear import LinearOracle, Logistic, Softmax, Squares, Table, linear_problem, smoothness
from fedcef.estimators.penalties import Strength
from fedcef.oracles.stacked import Stacked

X, Y = load_diabetes(return_X_y=True)
X, Y = scale(X), scale(Y)
ALPHA = 0.02


def by_target(y, count):
    """Clients of unequal size that see neighbouring targets only."""
    order, n = np.argsort(y, kind="stable"), len(y)
    names = np.empty(n, dtype=int)
    names[order] = np.sqrt(np.arange(n) / n * count**2).astype(int)
    return names


def lasso(X, y, weight=None):
    return Lasso(alpha=ALPHA, tol=1e-12, max_iter=100_000).fit(X, y, sample_weight=weight)


def logistic(X, y, C):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(l1_ratio=1, solver="saga", C=C, tol=1e-10, max_iter=5000, random_state=0).fit(X, y)


@pytest.mark.parametrize("options", [{}, {"compressor": {"name": "topk", "ratio": 0.4}}, {"method": "zhang"}])
def test_the_lasso_is_scikit_learn_s(options):
    ours = FederatedLasso(alpha=ALPHA, **options).fit(X, Y, clients=by_target(Y, 4))
    theirs = lasso(X, Y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4, rtol=0)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-4)
    assert np.array_equal(ours.coef_ == 0, theirs.coef_ == 0)
    assert ours.clients_ == 4
    assert ours.bytes_ == ours.history_.bytes > 4 * 8 * X.shape[1] * ours.n_iter_ * (0.2 if options else 1)


def test_features_need_not_be_scaled():
    raw = X * 10.0 ** np.arange(-3, 7) + 100.0
    ours, theirs = FederatedLasso(alpha=ALPHA).fit(raw, Y, clients=by_target(X[:, 0], 3)), lasso(raw, Y)
    np.testing.assert_allclose(ours.predict(raw), theirs.predict(raw), atol=1e-4)
    without = FederatedLasso(alpha=ALPHA, fit_intercept=False).fit(X, Y + 1)
    same = Lasso(alpha=ALPHA, tol=1e-12, max_iter=100_000, fit_intercept=False).fit(X, Y + 1)
    np.testing.assert_allclose(without.coef_, same.coef_, atol=1e-4)
    assert without.intercept_ == 0


def test_two_classes_as_in_scikit_learn():
    X, y = make_classification(300, 12, n_informative=5, random_state=0)
    X = scale(X)
    ours, theirs = FederatedLogisticRegression(C=0.1).fit(X, y, clients=by_target(X[:, 0], 5)), logistic(X, y, 0.1)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)


def test_three_classes_as_in_scikit_learn():
    X, y = load_iris(return_X_y=True)
    X, names = scale(X), np.array(["setosa", "versicolor", "virginica"])[y]
    ours, theirs = FederatedLogisticRegression(C=0.2).fit(X, names, clients=by_target(y, 3)), logistic(X, names, 0.2)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    assert ours.classes_.tolist() == names[[0, 50, 100]].tolist()
    assert ours.score(X, names) == theirs.score(X, names)


def test_lists_of_tables_are_clients():
    names = by_target(Y, 3)
    tables, targets = [X[names == i] for i in range(3)], [Y[names == i] for i in range(3)]
    listed = FederatedLasso(alpha=ALPHA, tol=1e-4).fit(tables, targets)
    named = FederatedLasso(alpha=ALPHA, tol=1e-4).fit(X, Y, clients=names)
    np.testing.assert_array_equal(listed.coef_, named.coef_)
    assert listed.n_features_in_ == 10
    assert listed.bytes_ == named.bytes_
    words = np.array(["c", "a", "b"])[names]
    other = FederatedLasso(alpha=ALPHA, tol=1e-4).fit(X, Y, clients=words)
    np.testing.assert_allclose(other.coef_, named.coef_, atol=1e-6)


def test_cohorts_and_other_weights():
    names = by_target(Y, 3)
    cohorts = FederatedLasso(alpha=ALPHA, clients_per_round=2).fit(X, Y, clients=names)
    np.testing.assert_allclose(cohorts.coef_, lasso(X, Y).coef_, atol=1e-4)
    weight = (1 / np.bincount(names))[names]
    ours = FederatedLasso(alpha=ALPHA, weighting="uniform").fit(X, Y, clients=names)
    np.testing.assert_allclose(ours.coef_, lasso(X, Y, weight).coef_, atol=1e-4)


def test_one_large_client_among_small_ones_is_not_filled_up():
    names = np.minimum(np.arange(len(Y)) // 4, 10)
    ours = FederatedLasso(alpha=0.2, tol=1e-3, local_steps=20).fit(X, Y, clients=names)
    assert ours.clients_ == 11
    theirs = Lasso(alpha=0.2).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.02)


@pytest.mark.parametrize("link", [Squares(), Logistic(), Softmax()], ids=lambda link: type(link).__name__)
@pytest.mark.parametrize("intercept", [True, False])
def test_gradients_in_closed_form_are_those_of_autograd(link, intercept):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    outputs, sizes = (3 if isinstance(link, Softmax) else 1), (7, 4, 6)
    tables = [Table(normal(m, 5), normal(m, outputs).gt(0).double(), normal(m).square()) for m in sizes]
    penalty = Strength(1.0).penalty(torch.ones(5, dtype=torch.float64), outputs, intercept)
    problem = linear_problem(link, tables, penalty, intercept)
    x, exact = normal(3, problem.dim), Training(batch_size=0)
    round_ = Rounds(exact, 3).at(0)
    automatic = Stacked(problem, exact).for_round(round_, 1)(x, 0)
    ours = LinearOracle(problem, link, outputs)
    torch.testing.assert_close(ours.for_round(round_, 1)(x, 0), automatic)
    some = torch.tensor([0, 2])
    torch.testing.assert_close(ours.gradients(x[some], some, None, round_, 0), automatic[some])
    # the mean over clients is the weighted sum over samples
    total = sum(
        (t.weights * link.losses(problem.outputs(problem.model, x[0], t.inputs), t.targets)).sum() for t in tables
    )
    losses = [problem.loss(problem.outputs(problem.model, x[0], s.inputs), s.targets)
              for s in map(problem.client_samples, range(3))]  # fmt: skip
    torch.testing.assert_close(torch.stack(losses).mean(), total)


def test_the_curvature_is_found_without_decomposing():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(50, 8, generator=generator, dtype=torch.float64) * torch.arange(1, 9)
    tables = [Table(inputs[rows], inputs[rows, :1], torch.full((25,), 0.02, dtype=torch.float64))
              for rows in (slice(0, 25), slice(25, 50))]  # fmt: skip
    penalty = Strength(1.0).penalty(torch.ones(8, dtype=torch.float64), 1, intercept=False)
    problem = linear_problem(Squares(), tables, penalty, intercept=False)
    exact = max(float(torch.linalg.eigvalsh(t.inputs.T @ t.inputs / 25)[-1]) for t in tables)
    assert exact <= smoothness(Squares(), problem) <= 1.11 * exact


def test_they_are_estimators_like_others():
    model = FederatedLasso(alpha=ALPHA, compressor=TopK(ratio=0.5), local_steps=20)
    twin = clone(model)
    assert twin.get_params()["local_steps"] == 20
    model.fit(X, Y, clients=by_target(Y, 2))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.history_.records == model.history_.records
    np.testing.assert_allclose(
        model.history_.model(torch.from_numpy(X)).detach().numpy()[:, 0], model.predict(X), atol=1e-10
    )
    search = GridSearchCV(FederatedLasso(tol=1e-4), {"alpha": [0.01, 0.5]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"alpha": 0.01}


def test_too_few_rounds_are_told():
    with pytest.warns(ConvergenceWarning, match="did not come to tol=1e-07 in 1 rounds; give it more rounds"):
        FederatedLasso(alpha=ALPHA, rounds=1, local_steps=1).fit(X, Y)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FederatedLasso(alpha=-1).fit(X, Y), "alpha is -1; it must be a number of at least 0"),
        (lambda: FederatedLasso(rounds=0.5).fit(X, Y), "rounds is 0.5; it must be a whole number of at least 1"),
        (lambda: FederatedLasso(weighting="size").fit(X, Y), "weighting is 'size'; it must be 'samples' or 'uniform'"),
        (lambda: FederatedLogisticRegression(C=0).fit(X, Y > 0), "C is 0; it must be a number above 0"),
        (lambda: FederatedLogisticRegression().fit(X, Y > 9), "at least 2 classes"),
        (lambda: FederatedLasso().fit([X, X], Y), "y must be a list of as many arrays"),
        (lambda: FederatedLasso().fit([X, X[:, :3]], [Y, Y]), "Client 1's table has the shape"),
        (lambda: FederatedLasso().fit([X, X], [Y, Y[:3]]), "Client 1 has 442 samples but 3 targets"),
        (lambda: FederatedLasso().fit([X], [Y], clients=[1]), "X is already a list"),
        (lambda: FederatedLasso().fit(X, Y, clients=[1, 2]), "must name the client of each of 442 samples"),
        (lambda: FederatedLasso().fit([X, X * np.nan], [Y, Y]), "NaN"),
        (lambda: FederatedLasso(method="fedceff").fit(X, Y), "Did you mean fedcef?"),
        (lambda: FederatedLasso(compressor={"name": "topk", "ratio": 2}).fit(X, Y), "compressor.ratio is 2"),
    ],
)  # fmt: skip
def test_mistakes_get_a_sentence(make, says):
    with pytest.raises((ValueError, ConfigError), match=says.replace("(", r"\(")):
        make()
