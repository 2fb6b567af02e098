"""Linear models over clients in the manner of scikit-learn (docs/guides/estimators.md)."""

from fedcef.core.extras import needed

needed("sklearn", "the estimators", "data")

from fedcef.estimators.elastic_net import FederatedElasticNet  # noqa: E402
from fedcef.estimators.lasso import FederatedLasso  # noqa: E402
from fedcef.estimators.logistic import FederatedLogisticRegression  # noqa: E402
from fedcef.estimators.ridge import FederatedRidge  # noqa: E402

__all__ = ["FederatedElasticNet", "FederatedLasso", "FederatedLogisticRegression", "FederatedRidge"]
