"""scikit-learn's own checks of an estimator, all of them: none is expected to fail."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcef.estimators import FederatedLasso, FederatedLogisticRegression


@parametrize_with_checks([FederatedLasso(), FederatedLogisticRegression()])
def test_scikit_learn_s_checks(estimator, check):
    check(estimator)
