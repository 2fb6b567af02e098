"""Federated lasso and logistic regression in the manner of scikit-learn (docs/python.md)."""

from fedcef.core.extras import needed

needed("sklearn", "the estimators", "data")

from fedcef.estimators.lasso import FederatedLasso  # noqa: E402
from fedcef.estimators.logistic import FederatedLogisticRegression  # noqa: E402

__all__ = ["FederatedLasso", "FederatedLogisticRegression"]
