"""FederatedRidge: scikit-learn's Ridge on data that stay where they are."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from fedcef.estimators.penalties import Strength
from fedcef.estimators.regression import FederatedRegression


@dataclass(eq=False, repr=False)
class FederatedRidge(FederatedRegression):
    """Linear regression with a squared l2 penalty, fitted over clients that keep their data.

    Minimises what `sklearn.linear_model.Ridge` minimises on all clients' samples together,

        |y - X w - b|² + alpha · |w|²;

    as there, alpha is held against a sum over samples.  The other parameters and the attributes are those of
    `FederatedLasso`.
    """

    alpha: float = 1.0
    """The penalty's strength."""

    def _strength(self, samples: float) -> Strength:
        self._check("alpha", Real, 0.0)
        return Strength(0.0, float(self.alpha) / samples)
