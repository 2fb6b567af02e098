"""Linear models on sparse features, which stay sparse: centring and scaling happen to the coefficients.

With means μ and scales s a centred and scaled sample is (x - μ)/s, and dense.  Its product with w is that of x with w/s
less μ'w/s, so no number of x is changed, or copied, and a fit on sparse features is the one on dense features.  Beside
the features a fit needs a few numbers for every sample and every coefficient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function

from fedcef.core.round import Round
from fedcef.core.training import Training
from fedcef.estimators.clients import Array
from fedcef.estimators.design import PIECE, Design
from fedcef.estimators.linear import Link, top_eigenvalue
from fedcef.estimators.penalties import Penalty
from fedcef.estimators.scaling import Scaling, scale_of, sent
from fedcef.oracles.oracle import GradientOracle
from fedcef.problems.problem import Problem, Samples


@dataclass(frozen=True, eq=False)
class Rows:
    """Samples with sparse features, as if these were centred and scaled."""

    X: Any  # (m, d), compressed sparse rows
    mean: Tensor  # (d,)
    scale: Tensor  # (d,)

    def outputs(self, coefficients: Tensor, rows: Array | slice | None = None) -> Tensor:
        """The products of all rows, or of some, with coefficients (C, d), (m, C)."""
        raw = coefficients.detach() / self.scale
        return torch.from_numpy(self._some(rows) @ raw.T.numpy()) - raw @ self.mean

    def gradient(self, slopes: Tensor, rows: Array | slice | None = None) -> Tensor:
        """The products of slopes (m, C) with the features of all rows, or of some, (C, d)."""
        raw = torch.from_numpy(np.asarray(self._some(rows).T @ slopes.numpy())).T
        return (raw - slopes.sum(0).unsqueeze(-1) * self.mean) / self.scale

    def part(self, start: int, stop: int) -> Rows:
        """Rows from start to before stop, in the same memory."""
        X, first, last = self.X, self.X.indptr[start], self.X.indptr[stop]
        arrays = X.data[first:last], X.indices[first:last], X.indptr[start : stop + 1] - first
        return Rows(type(X)(arrays, shape=(stop - start, X.shape[1])), self.mean, self.scale)

    def _some(self, rows: Array | slice | None) -> Any:
        return self.X if rows is None else self.X[rows]  # which copies

    def __deepcopy__(self, memo: Any) -> Rows:
        return self  # never changed, and large


class _Product(Function):
    """W -> the outputs of some rows."""

    @staticmethod
    def forward(ctx: Any, W: Tensor, rows: Rows, numbers: Array) -> Tensor:
        ctx.rows, ctx.numbers = rows, numbers
        return rows.outputs(W, numbers)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None, None]:
        return ctx.rows.gradient(slopes.contiguous(), ctx.numbers), None, None


class SparseLinear(nn.Module):
    """A linear model that begins at 0, and whose inputs are the numbers of rows, (m, 1)."""

    def __init__(self, rows: Rows, outputs: int, intercept: bool) -> None:
        super().__init__()
        self.rows = rows
        self.weight = nn.Parameter(torch.zeros(outputs, rows.X.shape[1], dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=torch.float64)) if intercept else None

    def forward(self, numbers: Tensor) -> Tensor:
        outputs: Tensor = _Product.apply(self.weight, self.rows, numbers[:, 0].long().numpy())  # type: ignore[no-untyped-call]
        return outputs if self.bias is None else outputs + self.bias


@dataclass(frozen=True, eq=False)
class SparseDesign(Design):
    """Rows of all clients, one client's after the other's."""

    rows: Rows
    targets: Tensor  # (n, C)
    weights: Tensor  # (n,)
    bounds: list[tuple[int, int]]
    """Where each client's rows begin and end."""
    scaling: Scaling

    @classmethod
    def scaled(
        cls, X: Any, targets: Tensor, weights: Tensor, bounds: list[tuple[int, int]], centre: bool
    ) -> SparseDesign:
        """Agree on means and scales as dense tables do."""
        plain = Rows(X, torch.zeros(X.shape[1], dtype=torch.float64), torch.ones(X.shape[1], dtype=torch.float64))
        clients = [(plain.part(*where), weights[slice(*where)]) for where in bounds]
        mean, up, down = plain.mean, [], []
        if centre:
            sums = [torch.cat([w.sum()[None], rows.gradient(w.unsqueeze(-1))[0]]) for rows, w in clients]
            total = torch.stack(sums).sum(0)
            mean = total[1:] / total[0]
            up, down = [*sums], [mean]
        squares = [_squares(rows.X, w, mean) for rows, w in clients]
        largest = torch.from_numpy(abs(X).max(axis=0).toarray()).flatten()
        scale = scale_of(torch.stack(squares).sum(0), largest)
        scaling = Scaling(mean, scale, sent([*up, *squares]), len(bounds) * sent([*down, scale]))
        return cls(Rows(X, mean, scale), targets, weights, bounds, scaling)

    @property
    def shares(self) -> Tensor:  # type: ignore[override]
        """Each client's share of all weight, (N,)."""
        return torch.stack([self.weights[slice(*where)].sum() for where in self.bounds])

    def problem(self, link: Link, penalty: Penalty, intercept: bool, by_share: bool) -> Problem:
        factors = 1 / self.shares if by_share else torch.full((len(self.bounds),), float(len(self.bounds)))
        parts = list(zip(self.bounds, factors.tolist(), strict=True))
        return self._problem(link, penalty, intercept, parts)

    def whole(self, link: Link, penalty: Penalty, intercept: bool) -> Problem:
        return self._problem(link, penalty, intercept, [((0, len(self.weights)), 1.0)])

    def _problem(
        self, link: Link, penalty: Penalty, intercept: bool, parts: list[tuple[tuple[int, int], float]]
    ) -> Problem:
        model = SparseLinear(self.rows, self.targets.shape[1], intercept)
        clients = []
        for (start, stop), factor in parts:
            numbers = torch.arange(start, stop, dtype=torch.float64).unsqueeze(-1)
            factors = factor * (stop - start) * self.weights[start:stop].unsqueeze(-1)
            clients.append(Samples(numbers, torch.cat([self.targets[start:stop], factors], -1)))
        return Problem.build(model, link.loss, clients, regularizer=penalty)

    def oracle(self, problem: Problem, link: Link) -> GradientOracle:
        return SparseOracle(problem, link, [self.rows.part(*where) for where in self.bounds])

    def smoothness(self, link: Link, problem: Problem) -> float:
        generator = torch.Generator().manual_seed(0)
        start = torch.randn(self.rows.X.shape[1] + 1, generator=generator, dtype=torch.float64)
        intercept = any(name.endswith("bias") for name in problem.layout.names)
        largest = 0.0
        for i, where in enumerate(self.bounds):
            rows, samples = self.rows.part(*where), problem.client_samples(i)
            weights = samples.targets[:, -1:] / len(samples)

            def times(v: Tensor, rows: Rows = rows, weights: Tensor = weights) -> Tensor:
                slopes = weights * (rows.outputs(v[None, :-1]) + intercept * v[-1])
                return torch.cat([rows.gradient(slopes)[0], intercept * slopes.sum(0)])

            largest = max(largest, top_eigenvalue(times, start))
        return link.curvature * largest

    def columns(self, features: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        mean, scale = self.rows.mean[features], self.rows.scale[features]
        for start in range(0, len(self.weights), PIECE):
            piece = self.rows.X[start : start + PIECE][:, features.numpy()]
            yield (torch.from_numpy(piece.toarray()) - mean) / scale, self.weights[start : start + PIECE]

    def outputs(self, coefficients: Tensor, intercepts: Tensor) -> Iterator[Tensor]:
        for start in range(0, len(self.weights), PIECE):
            yield self.rows.outputs(coefficients, slice(start, start + PIECE)) + intercepts


class SparseOracle(GradientOracle):
    """The clients' exact gradients, one client after the other."""

    def __init__(self, problem: Problem, link: Link, clients: list[Rows]) -> None:
        super().__init__(problem, Training(batch_size=0))
        self.captures = False
        self._link, self._clients = link, clients
        self._shape = problem.layout.shapes[0]
        samples = [problem.client_samples(i) for i in range(len(clients))]
        self._targets = [part.targets[:, :-1] for part in samples]
        self._weights = [part.targets[:, -1:] / len(part) for part in samples]

    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int) -> Tensor:
        """Every client's gradient at its own row of x, (clients, p)."""
        return torch.stack([self._gradient(mine, i) for mine, i in zip(x, clients.tolist(), strict=True)])

    def _gradient(self, x: Tensor, i: int) -> Tensor:
        size = self._shape[0] * self._shape[1]
        outputs, b = self._clients[i].outputs(x[:size].view(self._shape)), x[size:]
        slopes = self._weights[i] * self._link.slopes(outputs + b if b.numel() else outputs, self._targets[i])
        return torch.cat([self._clients[i].gradient(slopes).flatten(), slopes.sum(0)[: b.numel()]])


def _squares(X: Any, weights: Tensor, mean: Tensor) -> Tensor:
    """Weighted sums of squares around the mean, (d,): of the entries that are there, and of those that are 0."""
    of_entry = np.repeat(weights.numpy(), np.diff(X.indptr))
    columns, centre = X.indices, mean.numpy()
    there = np.bincount(columns, of_entry * (X.data - centre[columns]) ** 2, minlength=X.shape[1])
    away = float(weights.sum()) - np.bincount(columns, of_entry, minlength=X.shape[1])
    return torch.from_numpy(there + np.maximum(away, 0) * centre**2)
