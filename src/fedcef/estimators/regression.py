"""What the regressions share: outputs are numbers, one or several for each sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedcef.estimators.clients import Array, pooled
from fedcef.estimators.federated import FederatedLinear
from fedcef.estimators.linear import Squares
from fedcef.estimators.penalties import Strength


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedRegression(MultiOutputMixin, RegressorMixin, FederatedLinear):  # type: ignore[misc]
    """Linear regression over clients that keep their data; the penalty is what follows from it."""

    def _strength(self, samples: float) -> Strength:
        """The penalty beside squares/(2·samples)."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, clients: Any = None) -> Self:
        """Fit to lists with one table and one vector per client, or to one table whose rows `clients` names.

        Tables may be arrays, data frames or sparse matrices of SciPy.  Without `clients` a single table belongs to a
        single client.
        """
        data = pooled(X, y, sample_weight, clients)
        X, y = self._validated(data, y_numeric=True, multi_output=True)
        weights = _check_sample_weight(data.sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        targets = np.asarray(y, dtype=np.float64)
        single = targets.ndim == 1
        columns = targets[:, None] if single else targets
        strength = self._strength(float(weights.sum()))
        coef, intercept = self._solve(Squares(), X, columns, weights, data.clients, strength)
        self.coef_, self.intercept_ = (coef[0], float(intercept[0])) if single else (coef, intercept)
        return self

    def predict(self, X: Any) -> Array:
        """The model's outputs for a table, (n,), or (n, outputs) if it was fitted to several."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)
        return np.asarray(safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_)
