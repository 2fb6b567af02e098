"""FederatedLogisticRegression: penalised logistic regression on data that stay where they are."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedcef.estimators.clients import Array, pooled
from fedcef.estimators.federated import FederatedLinear
from fedcef.estimators.linear import Logistic, Softmax
from fedcef.estimators.penalties import Strength


@dataclass(eq=False, repr=False)
class FederatedLogisticRegression(ClassifierMixin, FederatedLinear):  # type: ignore[misc]
    """Logistic regression with an l1 penalty, fitted over clients that keep their data.

    Minimises what `sklearn.linear_model.LogisticRegression(l1_ratio=l1_ratio, solver="saga")` minimises on all clients'
    samples together,

        C · Σ log-loss + l1_ratio · |w|_1 + (1 - l1_ratio)/2 · |w|²,

    with one vector of coefficients for two classes and one for each of more (multinomial).  With `penalty="group"`,
    which scikit-learn does not have, |w|_1 is replaced by the sum over features of the norms of their coefficients, so
    that a feature is used for all classes or for none.  The intercept is not penalised.  The classes must be known to
    all clients.  `C` is the inverse of the penalty's strength; the other parameters and the attributes are those of
    `FederatedLasso`, and `classes_`.
    """

    C: float = 1.0
    """The inverse of the penalty's strength."""
    _: KW_ONLY
    l1_ratio: float = 1.0
    """How much of the penalty is l1; 0 is ridge."""
    penalty: Literal["elastic_net", "group"] = "elastic_net"
    """What the l1 part is of: all coefficients, or the norms of each feature's."""
    classes_: Array = field(init=False)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, clients: Any = None) -> FederatedLogisticRegression:
        """Fit to lists with one table and one vector per client, or to one table whose rows `clients` names.

        Tables may be arrays, data frames or sparse matrices of SciPy.  Without `clients` a single table belongs to a
        single client.
        """
        self._check("C", Real, 0.0, above=True)
        self._check("l1_ratio", Real, 0.0, most=1.0)
        if self.penalty not in ("elastic_net", "group"):
            raise ValueError(f"penalty is {self.penalty!r}; it must be 'elastic_net' or 'group'.")
        data = pooled(X, y, sample_weight, clients)
        X, y = self._validated(data)
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
        total, ratio = 1 / (float(self.C) * float(weights.sum())), float(self.l1_ratio)
        strength = Strength(total * ratio, total * (1 - ratio), by_feature=self.penalty == "group")
        link = Logistic() if two else Softmax()
        self.coef_, self.intercept_ = self._solve(link, X, targets, weights, data.clients, strength)
        return self

    def decision_function(self, X: Any) -> Array:
        """The outputs before they become probabilities: (n,) for two classes, (n, classes) for more."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)
        scores = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
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
