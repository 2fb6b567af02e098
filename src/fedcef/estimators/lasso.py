"""FederatedLasso: scikit-learn's Lasso on data that stay where they are."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from fedcef.estimators.penalties import Strength
from fedcef.estimators.regression import FederatedRegression


@dataclass(eq=False, repr=False)
class FederatedLasso(FederatedRegression):
    """Linear regression with an l1 penalty, fitted over clients that keep their data.

    Minimises what `sklearn.linear_model.Lasso` minimises on all clients' samples together,

        1/(2n) · |y - X w - b|² + alpha · |w|_1,

    and with `weighting="uniform"` the mean over clients of that.

    Parameters: `alpha` and `fit_intercept` as in scikit-learn; `method` and `compressor` by name or as tables of
    options, as in settings files, e.g. {"name": "topk", "ratio": 0.1}; `local_steps` in a round; at most `rounds` of
    them, until the gradient mapping is `tol` times the gradient at the start; `newton_after`, the rounds after which
    Newton steps finish a fit (None = never); `clients_per_round` (None = all); `seed`.

    Attributes: `coef_`, `intercept_`, `n_features_in_`, `feature_names_in_` (from data frames), `n_iter_` (rounds),
    `history_`, `bytes_` (all that was sent, what scaling and the looks at the gradient take included), `clients_` (how
    many).
    """

    alpha: float = 1.0
    """The penalty's strength."""

    def _strength(self, samples: float) -> Strength:
        self._check("alpha", Real, 0.0)
        return Strength(float(self.alpha))
