"""scikit-learn's own checks of an estimator, all of them: none is expected to fail."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcef.estimators import FederatedElasticNet, FederatedLasso, FederatedLogisticRegression, FederatedRidge

AT_ONCE = {"newton_after": 0}  # which is quicker; the others have their defaults


@parametrize_with_checks(
    [FederatedLasso(), FederatedRidge(**AT_ONCE), FederatedElasticNet(**AT_ONCE), FederatedLogisticRegression()]
)
def test_scikit_learn_s_checks(estimator, check):
    check(estimator)
