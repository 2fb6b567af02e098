"""What the estimators share: parameters, and the way from checked arrays to a solution."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from fedcef.algorithms import ALGORITHMS
from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import COMPRESSORS, Compressor, Identity
from fedcef.core.parts import make
from fedcef.core.training import Training
from fedcef.estimators.clients import Array, rows_of_clients
from fedcef.estimators.linear import Link, Table, linear_problem, smoothness
from fedcef.estimators.scaling import Scaling
from fedcef.estimators.solve import solve
from fedcef.problems.problem import Problem
from fedcef.python.history import History
from fedcef.wire import Dense, frame_nbytes

Named = str | Mapping[str, Any]
"""A name as in settings files, or a table with `name` and options."""


class FederatedLinear(BaseEstimator):  # type: ignore[misc]
    """Sparse linear models; see the two that follow from it for their parameters."""

    fit_intercept: bool
    method: Named
    compressor: Named | Compressor | None
    local_steps: int
    rounds: int
    tol: float
    clients_per_round: int | None
    weighting: str
    seed: int

    coef_: Array
    intercept_: Any
    n_features_in_: int
    n_iter_: int
    history_: History
    bytes_: int
    clients_: int

    def _solve(
        self, link: Link, X: Array, targets: Array, sample_weight: Array, clients: Array | None, l1: float
    ) -> tuple[Array, Array]:
        """Coefficients (C, d) and intercepts (C,) for targets (n, C); sets what every estimator tells of its fit."""
        self._check_common()
        tables = self._tables(X, targets, sample_weight, rows_of_clients(clients, len(X)))
        scaling = Scaling.of(tables, centre=self.fit_intercept)
        penalties = (l1 / scaling.scale).expand(targets.shape[1], -1).contiguous()
        tables = scaling.apply(tables)
        by_share = self.clients_per_round is None and len({table.share for table in tables}) > 1
        problem = linear_problem(link, tables, penalties, self.fit_intercept, by_share)
        whole = linear_problem(link, [_joined(tables)], penalties, self.fit_intercept)
        curvature = smoothness(link, problem) or 1.0
        solution = solve(
            problem,
            whole,
            self._algorithm(problem, 0.5 / curvature),
            curvature,
            self.tol,
            link=link,
            shares=torch.tensor([table.share for table in tables], dtype=torch.float64) if by_share else None,
            training=Training(
                rounds=int(self.rounds),
                seed=int(self.seed),
                clients_per_round=self.clients_per_round or 0,
                batch_size=0,
            ),
        )
        named = problem.layout.unflatten(solution.point)
        coef, intercept = scaling.undo(named["weight"], named.get("bias", solution.point.new_zeros(len(penalties))))
        # the curvatures travel, too, one number from each client and one back; and for each look gradients and losses
        number = len(tables) * int(frame_nbytes({"number": Dense(scaling.mean[:1])}))
        look = len(tables) * int(frame_nbytes({"gradient": Dense(solution.point)})) + number
        for looks, record in enumerate(solution.records, 1):
            record["wire_up_bytes"] += scaling.up_bytes + number + looks * look
            record["wire_down_bytes"] += scaling.down_bytes + number
        self.history_ = _history(solution.records, coef, intercept)
        self.bytes_ = self.history_.bytes
        self.n_iter_ = max(1, int(self.history_.last["round"]))
        self.clients_ = len(tables)
        if not solution.converged:
            warnings.warn(
                f"{type(self).__name__} did not come to tol={self.tol:g} in {self.rounds} rounds; give it more rounds, "
                "more local_steps or a larger tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return coef.numpy(), intercept.numpy()

    def _tables(self, X: Array, targets: Array, sample_weight: Array, rows: list[Array]) -> list[Table]:
        """Each client's samples; weights add up to 1 over all of them, or to 1/N for each client."""
        rows = [mine for mine in rows if sample_weight[mine].sum() > 0]

        def weights(mine: Array) -> Array:
            total = sample_weight[mine].sum() * len(rows) if self.weighting == "uniform" else sample_weight.sum()
            return np.asarray(sample_weight[mine] / total)

        return [Table(_tensor(X[mine]), _tensor(targets[mine]), _tensor(weights(mine))) for mine in rows]

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
        if self.weighting not in ("samples", "uniform"):
            raise ValueError(f"weighting is {self.weighting!r}; it must be 'samples' or 'uniform'.")

    def _check(self, name: str, kind: type, least: float, above: bool = False) -> None:
        value: Any = getattr(self, name)
        right = isinstance(value, kind) and not isinstance(value, bool)
        if not right or not (value > least if above else value >= least):
            what = "a whole number" if kind is Integral else "a number"
            raise ValueError(f"{name} is {value!r}; it must be {what} {'above' if above else 'of at least'} {least}.")


def _section(named: Named) -> dict[str, Any]:
    return {"name": named} if isinstance(named, str) else dict(named)


def _joined(tables: list[Table]) -> Table:
    parts = [(table.inputs, table.targets, table.weights) for table in tables]
    return Table(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _tensor(values: Array) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _history(records: list[dict[str, float]], coef: Tensor, intercept: Tensor) -> History:
    """The history with the model for the features as they were."""
    return History(records, {"weight": coef, "bias": intercept}, nn.Linear(coef.shape[1], len(coef), dtype=coef.dtype))
