"""FederatedLasso: scikit-learn's Lasso on data that stay where they are."""

from __future__ import annotations

from numbers import Real
from typing import Any, Literal

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedcef.compressors import Compressor
from fedcef.estimators.clients import Array, pooled
from fedcef.estimators.federated import FederatedLinear, Named
from fedcef.estimators.linear import Squares


class FederatedLasso(RegressorMixin, FederatedLinear):  # type: ignore[misc]
    """Linear regression with an l1 penalty, fitted over clients that keep their data.

    Minimises what `sklearn.linear_model.Lasso` minimises on all clients' samples together,

        1/(2n) · |y - X w - b|² + alpha · |w|_1,

    and with `weighting="uniform"` the mean over clients of that.

    Parameters: `alpha` and `fit_intercept` as in scikit-learn; `method` and `compressor` by name or as tables of
    options, as in settings files, e.g. {"name": "topk", "ratio": 0.1}; `local_steps` in a round; at most `rounds` of
    them, until the gradient mapping is `tol` times the gradient at the start; `clients_per_round` (None = all); `seed`.

    Attributes: `coef_`, `intercept_`, `n_features_in_`, `n_iter_` (rounds), `history_`, `bytes_` (all that was sent,
    what scaling and the looks at the gradient take included), `clients_` (how many).
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        method: Named = "fedcef",
        compressor: Named | Compressor | None = None,
        local_steps: int = 50,
        rounds: int = 2000,
        tol: float = 1e-7,
        clients_per_round: int | None = None,
        weighting: Literal["samples", "uniform"] = "samples",
        seed: int = 0,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.method = method
        self.compressor = compressor
        self.local_steps = local_steps
        self.rounds = rounds
        self.tol = tol
        self.clients_per_round = clients_per_round
        self.weighting = weighting
        self.seed = seed

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, clients: Any = None) -> FederatedLasso:
        """Fit to lists with one table and one vector per client, or to one table whose rows `clients` names.

        Without `clients` a single table belongs to a single client.
        """
        self._check("alpha", Real, 0.0)
        data = pooled(X, y, sample_weight, clients)
        X, y = validate_data(self, data.X, data.y, dtype=np.float64, y_numeric=True)
        weights = _check_sample_weight(data.sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        targets = np.asarray(y, dtype=np.float64)[:, None]
        coef, intercept = self._solve(Squares(), X, targets, weights, data.clients, float(self.alpha))
        self.coef_, self.intercept_ = coef[0], float(intercept[0])
        return self

    def predict(self, X: Any) -> Array:
        """The model's outputs for a table, (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)
