"""FederatedLogisticRegression: l1-penalised logistic regression on data that stay where they are."""

from __future__ import annotations

from numbers import Real
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedcef.compressors import Compressor
from fedcef.estimators.clients import Array, pooled
from fedcef.estimators.federated import FederatedLinear, Named
from fedcef.estimators.linear import Logistic, Softmax


class FederatedLogisticRegression(ClassifierMixin, FederatedLinear):  # type: ignore[misc]
    """Logistic regression with an l1 penalty, fitted over clients that keep their data.

    Minimises what `sklearn.linear_model.LogisticRegression(l1_ratio=1, solver="saga")` minimises on all clients'
    samples together,

        C · Σ log-loss + |w|_1,

    with one vector of coefficients for two classes and one for each of more (multinomial).  The intercept is not
    penalised.  The classes must be known to all clients.  `C` is the inverse of the penalty's strength; the other
    parameters and the attributes are those of `FederatedLasso`, and `classes_`.
    """

    classes_: Array

    def __init__(
        self,
        C: float = 1.0,
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
        self.C = C
        self.fit_intercept = fit_intercept
        self.method = method
        self.compressor = compressor
        self.local_steps = local_steps
        self.rounds = rounds
        self.tol = tol
        self.clients_per_round = clients_per_round
        self.weighting = weighting
        self.seed = seed

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, clients: Any = None) -> FederatedLogisticRegression:
        """Fit to lists with one table and one vector per client, or to one table whose rows `clients` names.

        Without `clients` a single table belongs to a single client.
        """
        self._check("C", Real, 0.0, above=True)
        data = pooled(X, y, sample_weight, clients)
        X, y = validate_data(self, data.X, data.y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        weights = _check_sample_weight(data.sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        seen = self.classes_[np.bincount(numbers, weights) > 0]
        if len(seen) < 2:
            raise ValueError(
                f"There must be samples of at least 2 classes with a weight above 0; the data has one class: {seen[0]}."
            )
        two = len(self.classes_) == 2
        targets = numbers[:, None].astype(np.float64) if two else np.eye(len(self.classes_))[numbers]
        l1 = 1 / (float(self.C) * float(weights.sum()))
        self.coef_, self.intercept_ = self._solve(
            Logistic() if two else Softmax(), X, targets, weights, data.clients, l1
        )
        return self

    def decision_function(self, X: Any) -> Array:
        """The outputs before they become probabilities: (n,) for two classes, (n, classes) for more."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = X @ self.coef_.T + self.intercept_
        return np.asarray(scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict(self, X: Any) -> Array:
        """The likeliest class of every row, (n,)."""
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)
        return np.asarray(self.classes_[chosen])

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of the classes' probabilities, (n, classes)."""
        scores = self.decision_function(X)
        outputs = np.stack([np.zeros_like(scores), scores], 1) if scores.ndim == 1 else scores
        return np.asarray(outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True))

    def predict_proba(self, X: Any) -> Array:
        """The classes' probabilities, (n, classes), in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))
