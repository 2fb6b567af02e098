"""What the estimators share: parameters, and the way from checked arrays to a solution."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from fedcef.algorithms import ALGORITHMS
from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import COMPRESSORS, Compressor, Identity
from fedcef.core.parts import make
from fedcef.core.training import Training
from fedcef.estimators.clients import Array, Pooled, rows_of_clients
from fedcef.estimators.design import DenseDesign, Design
from fedcef.estimators.linear import Link, Table
from fedcef.estimators.penalties import Strength
from fedcef.estimators.solve import solve
from fedcef.estimators.sparse import SparseDesign
from fedcef.problems.problem import Problem
from fedcef.python.history import History
from fedcef.wire import Dense, frame_nbytes

Named = str | Mapping[str, Any]
"""A name as in settings files, or a table with `name` and options."""


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedLinear(BaseEstimator):  # type: ignore[misc]
    """What the linear models have in common.

    A list of tables is one for each client; the rows of a single table are those of the clients that `clients` names.
    """

    fit_intercept: bool = True
    """Whether there is an intercept, which is never penalised."""
    method: Named = "fedcef"
    """The method: a name as in settings files, or a table with `name` and options."""
    compressor: Named | Compressor | None = None
    """What shortens messages: a name, a table such as {"name": "topk", "ratio": 0.1}, an object, or None."""
    local_steps: int = 50
    """Steps that clients take between messages."""
    rounds: int = 2000
    """The most rounds: scikit-learn's max_iter."""
    tol: float = 1e-7
    """A fit is done when the gradient mapping is so much of the gradient at the start."""
    newton_after: int | None = 300
    """After so many rounds Newton steps finish the fit: clients then send the curvature between the features in use.
    None = never."""
    clients_per_round: int | None = None
    """How many clients take part in a round; None = all."""
    weighting: Literal["samples", "uniform"] = "samples"
    """Whether samples count alike, or clients."""
    seed: int = 0
    """What compressors and cohorts are drawn by."""

    coef_: Array = field(init=False)
    intercept_: Any = field(init=False)
    n_features_in_: int = field(init=False)
    n_iter_: int = field(init=False)
    history_: History = field(init=False)
    bytes_: int = field(init=False)
    clients_: int = field(init=False)

    def _validated(self, data: Pooled, **checks: Any) -> tuple[Any, Any]:
        """Features and targets as scikit-learn wants them; sets `n_features_in_`, and `feature_names_in_` if known."""
        X, y = validate_data(self, data.X, data.y, dtype=np.float64, accept_sparse="csr", **checks)
        if data.named is not None:
            validate_data(self, data.named, skip_check_array=True)
        return X, y

    def _solve(
        self, link: Link, X: Any, targets: Array, sample_weight: Array, clients: Array | None, strength: Strength
    ) -> tuple[Array, Array]:
        """Coefficients (C, d) and intercepts (C,) for targets (n, C); sets what every estimator tells of its fit."""
        self._check_common()
        design = self._design(X, targets, sample_weight, rows_of_clients(clients, X.shape[0]))
        scaling, shares = design.scaling, design.shares
        penalty = strength.penalty(scaling.scale, targets.shape[1], self.fit_intercept)
        by_share = self.clients_per_round is None and len(set(shares.tolist())) > 1
        problem = design.problem(link, penalty, self.fit_intercept, by_share)
        curvature = design.smoothness(link, problem) or 1.0
        solution = solve(
            problem,
            design.whole(link, penalty, self.fit_intercept),
            self._algorithm(problem, 0.5 / curvature),
            curvature,
            self.tol,
            design=design,
            link=link,
            shares=shares if by_share else None,
            training=Training(
                rounds=int(self.rounds),
                seed=int(self.seed),
                clients_per_round=self.clients_per_round or 0,
                batch_size=0,
            ),
            newton_after=self.newton_after,
        )
        named = problem.layout.unflatten(solution.point)
        coef, intercept = scaling.undo(named["weight"], named.get("bias", solution.point.new_zeros(targets.shape[1])))
        # the curvatures travel, too, one number from each client and one back; and for each look gradients and losses
        number = len(shares) * int(frame_nbytes({"number": Dense(scaling.mean[:1])}))
        look = len(shares) * int(frame_nbytes({"gradient": Dense(solution.point)})) + number
        for looks, record in enumerate(solution.records, 1):
            record["wire_up_bytes"] += scaling.up_bytes + number + looks * look
            record["wire_down_bytes"] += scaling.down_bytes + number
        self.history_ = _history(solution.records, coef, intercept)
        self.bytes_ = self.history_.bytes
        self.n_iter_ = max(1, int(self.history_.last["round"]))
        self.clients_ = len(shares)
        if not solution.converged:
            warnings.warn(
                f"{type(self).__name__} did not come to tol={self.tol:g} in {self.rounds} rounds; give it more rounds, "
                "more local_steps or a larger tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return coef.numpy(), intercept.numpy()

    def _design(self, X: Any, targets: Array, sample_weight: Array, rows: list[Array]) -> Design:
        """Each client's samples; weights add up to 1 over all of them, or to 1/N for each client."""
        rows = [mine for mine in rows if sample_weight[mine].sum() > 0]

        def weights(mine: Array) -> Array:
            total = sample_weight[mine].sum() * len(rows) if self.weighting == "uniform" else sample_weight.sum()
            return np.asarray(sample_weight[mine] / total)

        if not issparse(X):
            tables = [Table(_tensor(X[mine]), _tensor(targets[mine]), _tensor(weights(mine))) for mine in rows]
            return DenseDesign.scaled(tables, centre=self.fit_intercept)
        order, ends = np.concatenate(rows), np.cumsum([len(mine) for mine in rows]).tolist()
        in_order = X if np.array_equal(order, np.arange(X.shape[0])) else X[order]
        all_weights = np.concatenate([weights(mine) for mine in rows])
        bounds = list(zip([0, *ends], ends, strict=False))
        return SparseDesign.scaled(
            in_order, _tensor(targets[order]), _tensor(all_weights), bounds, centre=self.fit_intercept
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _algorithm(self, problem: Problem, local_lr: float) -> Algorithm:
        compressor = self.compressor
        if compressor is None:
            compressor = Identity()
        elif not isinstance(compressor, Compressor):
            compressor = make("compressor", COMPRESSORS, _section(compressor))
        return make(
            "method",
            ALGORITHMS,
            _section(self.method),
            local_lr=local_lr,
            server_lr=1.0,
            local_steps=int(self.local_steps),
            regularizer=problem.regularizer,
            compressor=compressor.fit(problem.layout),
        )

    def _check_common(self) -> None:
        self._check("rounds", Integral, 1)
        self._check("local_steps", Integral, 1)
        self._check("seed", Integral, 0)
        self._check("tol", Real, 0.0)
        if self.newton_after is not None:
            self._check("newton_after", Integral, 0)
        if self.weighting not in ("samples", "uniform"):
            raise ValueError(f"weighting is {self.weighting!r}; it must be 'samples' or 'uniform'.")

    def _check(self, name: str, kind: type, least: float, *, above: bool = False, most: float = math.inf) -> None:
        value: Any = getattr(self, name)
        right = isinstance(value, kind) and not isinstance(value, bool)
        if not right or not (value > least if above else value >= least) or value > most:
            what = "a whole number" if kind is Integral else "a number"
            where = f"{'above' if above else 'of at least'} {least}" + (
                f" and at most {most}" if most < math.inf else ""
            )
            raise ValueError(f"{name} is {value!r}; it must be {what} {where}.")


def _section(named: Named) -> dict[str, Any]:
    return {"name": named} if isinstance(named, str) else dict(named)


def _tensor(values: Array) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _history(records: list[dict[str, float]], coef: Tensor, intercept: Tensor) -> History:
    """The history with the model for the features as they were."""
    return History(records, {"weight": coef, "bias": intercept}, nn.Linear(coef.shape[1], len(coef), dtype=coef.dtype))
