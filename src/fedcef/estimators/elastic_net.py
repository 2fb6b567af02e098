"""FederatedElasticNet: scikit-learn's ElasticNet on data that stay where they are."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Real

from fedcef.estimators.penalties import Strength
from fedcef.estimators.regression import FederatedRegression


@dataclass(eq=False, repr=False)
class FederatedElasticNet(FederatedRegression):
    """Linear regression with l1 and squared l2 penalties, fitted over clients that keep their data.

    Minimises what `sklearn.linear_model.ElasticNet` minimises on all clients' samples together,

        1/(2n) · |y - X w - b|² + alpha · (l1_ratio · |w|_1 + (1 - l1_ratio)/2 · |w|²).

    The other parameters and the attributes are those of `FederatedLasso`.
    """

    alpha: float = 1.0
    """The penalty's strength."""
    _: KW_ONLY
    l1_ratio: float = 0.5
    """How much of it is l1."""

    def _strength(self, samples: float) -> Strength:
        self._check("alpha", Real, 0.0)
        self._check("l1_ratio", Real, 0.0, most=1.0)
        alpha, ratio = float(self.alpha), float(self.l1_ratio)
        return Strength(alpha * ratio, alpha * (1 - ratio))
