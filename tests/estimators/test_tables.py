"""What estimators are given: sparse matrices, data frames, several targets; and what they tell of it."""

import resource

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.datasets import load_diabetes, load_wine
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import ElasticNet, Lasso, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold

from fedcef.estimators import (
    FederatedElasticNet,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedRidge,
)

X, Y = load_diabetes(return_X_y=True)
X, Y = X / X.std(0), (Y - Y.mean()) / Y.std()
THIRDS = np.arange(len(Y)) % 3


def some_zeros(seed=0):
    """Features most of which are 0, with means that are not."""
    generator = np.random.default_rng(seed)
    table = np.where(generator.random((120, 30)) < 0.1, generator.normal(3, 1, (120, 30)), 0)
    table[:, 7] = 0  # and one that says nothing
    return table, table[:, :4].sum(1) + 0.1 * generator.standard_normal(120)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array, sp.coo_matrix], ids=lambda form: form.__name__)
def test_sparse_features_give_what_dense_ones_give(form, intercept):
    table, y = some_zeros()
    model = FederatedLasso(0.01, fit_intercept=intercept, local_steps=10, newton_after=20, tol=1e-9)
    names = np.argsort(np.argsort(y)) * 3 // len(y)  # unequal rows in no order
    dense = model.fit(table, y, clients=names)
    coefficients, intercept, bytes_ = dense.coef_, dense.intercept_, dense.history_.records[0]["wire_up_bytes"]
    sparse = model.fit(form(table), y, clients=names)
    np.testing.assert_allclose(sparse.coef_, coefficients, atol=1e-7)
    assert sparse.intercept_ == pytest.approx(intercept, abs=1e-7)
    assert sparse.history_.records[0]["wire_up_bytes"] == bytes_
    np.testing.assert_allclose(sparse.predict(form(table)), sparse.predict(table), atol=1e-12)


def test_sparse_features_of_classes_and_lists():
    X, y = load_wine(return_X_y=True)
    X = np.where(np.median(X, 0) < X, X, 0)
    tables, targets = [sp.csr_matrix(X[i::3]) for i in range(3)], [y[i::3] for i in range(3)]
    model = FederatedLogisticRegression(C=0.5, newton_after=20, clients_per_round=2)
    sparse = model.fit(tables, targets).coef_
    dense = model.fit([table.toarray() for table in tables], targets).coef_
    np.testing.assert_allclose(sparse, dense, atol=1e-6)


def test_sparse_features_are_never_made_dense():
    """Dense they would be 1.6 GB: neither rounds nor Newton steps may take a fraction of that."""
    generator, n = np.random.default_rng(0), 4000
    rare = sp.csr_matrix(
        (generator.random(20 * n), generator.integers(0, 50_000, 20 * n), np.arange(n + 1) * 20), shape=(n, 50_000)
    )
    common = sp.csr_matrix(np.where(generator.random((n, 20)) < 0.05, generator.random((n, 20)), 0))
    features, y = sp.hstack([common, rare], format="csr"), np.asarray(common.sum(1)).ravel()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = FederatedLasso(3e-4, local_steps=1, newton_after=10, tol=1e-6).fit(features, y, clients=np.arange(n) % 2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB
    assert model.n_iter_ > 10
    assert np.flatnonzero(model.coef_).tolist() == list(range(20))
    slopes = features.T @ (model.predict(features) - y) / n
    np.testing.assert_allclose(slopes[:20], -3e-4, rtol=1e-4)
    assert abs(slopes).max() <= 3.0003e-4


def test_names_of_features_come_from_data_frames():
    pandas = pytest.importorskip("pandas")
    names = [f"x{j}" for j in range(10)]
    frames = [pandas.DataFrame(X[i == THIRDS], columns=names) for i in range(3)]
    targets = [pandas.Series(Y[i == THIRDS]) for i in range(3)]
    listed = FederatedLasso(0.1).fit(frames, targets)
    assert listed.feature_names_in_.tolist() == names
    assert listed.n_features_in_ == 10
    together = FederatedLasso(0.1).fit(pandas.DataFrame(X, columns=names), Y, clients=pandas.Series(THIRDS))
    assert together.feature_names_in_.tolist() == names
    np.testing.assert_array_equal(together.coef_, listed.coef_)
    chosen = SelectFromModel(FederatedLasso(0.1)).fit(pandas.DataFrame(X, columns=names), Y).get_feature_names_out()
    assert chosen.tolist() == [name for name, value in zip(names, together.coef_, strict=True) if abs(value) > 1e-5]
    np.testing.assert_array_equal(listed.predict(frames[0]), listed.predict(pandas.DataFrame(frames[0])))
    with pytest.raises(ValueError, match="feature names should match"):
        listed.predict(frames[0].rename(columns={"x3": "other"}))
    assert not hasattr(FederatedLasso(0.1).fit([X], [Y]), "feature_names_in_")


def test_tables_that_differ_get_a_sentence():
    pandas = pytest.importorskip("pandas")
    first, other = (pandas.DataFrame(X[:, :2], columns=list(names)) for names in ("ab", "ba"))
    with pytest.raises(ValueError, match=r"Client 1's columns are \['b', 'a'\] and client 0's \['a', 'b'\]"):
        FederatedLasso().fit([first, other], [Y, Y])
    with pytest.raises(ValueError, match="Client 1's table is dense and client 0's is sparse"):
        FederatedLasso().fit([sp.csr_matrix(X), X], [Y, Y])
    with pytest.raises(ValueError, match="Client 1 has 10 samples but 442 targets"):
        FederatedLasso().fit([sp.csr_matrix(X), sp.csr_matrix(X[:10])], [Y, Y])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (FederatedLasso(0.05, newton_after=0), Lasso(0.05, tol=1e-12)),
        (FederatedRidge(2.0, newton_after=0), Ridge(2.0)),
        (FederatedElasticNet(0.1, newton_after=0), ElasticNet(0.1, tol=1e-12)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_several_targets_as_in_scikit_learn(ours, theirs):
    targets = np.stack([Y, -2 * Y + X[:, 0]], 1)
    ours.fit(X, targets, clients=THIRDS)
    theirs.fit(X, targets)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    assert ours.predict(X).shape == targets.shape


def test_weights_of_samples_count_in_every_penalty():
    weight = np.arange(len(Y)) % 4  # some are 0
    for ours, theirs in [
        (FederatedRidge(5.0, newton_after=0), Ridge(5.0)),
        (FederatedElasticNet(0.1, newton_after=0), ElasticNet(0.1, tol=1e-12)),
    ]:
        ours.fit(X, Y, sample_weight=weight, clients=THIRDS)
        np.testing.assert_allclose(ours.coef_, theirs.fit(X, Y, sample_weight=weight).coef_, atol=1e-5)


def test_clients_reach_a_fit_through_a_search():
    with config_context(enable_metadata_routing=True):
        model = FederatedRidge(newton_after=0).set_fit_request(clients=True)
        search = GridSearchCV(model, {"alpha": [1.0, 1e4]}, cv=GroupKFold(3))
        search.fit(X, Y, clients=THIRDS, groups=THIRDS)  # trained on two clients, tried on the third
    assert search.best_params_ == {"alpha": 1.0}
    assert search.best_estimator_.clients_ == 3


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FederatedElasticNet(l1_ratio=1.5), "l1_ratio is 1.5; it must be a number of at least 0.0 and at most"),
        (lambda: FederatedRidge(alpha=-1), "alpha is -1; it must be a number of at least 0"),
        (lambda: FederatedRidge(newton_after=-1), "newton_after is -1; it must be a whole number of at least 0"),
        (lambda: FederatedLogisticRegression(penalty="l1"), "penalty is 'l1'; it must be 'elastic_net' or 'group'"),
        (lambda: FederatedLogisticRegression(l1_ratio=None), "l1_ratio is None; it must be a number"),
    ],
)
def test_mistakes_get_a_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make().fit(X, (Y > 0).astype(int))
