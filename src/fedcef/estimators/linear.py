"""Generalised linear models over clients as a `Problem`, with gradients in closed form.

    minimise over W, b    Σ_s ω_s ℓ(W x_s + b, y_s) + h(W),      Σ_s ω_s = 1

where s runs over all clients' samples.  The engine takes a mean over clients of the mean over a client's m rows.  If
clients count by their shares π_i = Σ_{s in i} ω_s of the weight, a row carries the factor m·ω_s/π_i; if they count
alike, N·m·ω_s.  The first keeps the curvatures of large and small clients alike; the second is for cohorts, whose sums
must be plain.  Clients are filled up to equal length by rows of weight 0, so that all of them are computed at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedcef.core.round import Round
from fedcef.core.training import Training
from fedcef.estimators.penalties import Penalty
from fedcef.oracles.oracle import GradientOracle
from fedcef.problems.problem import Problem, Samples

WASTE = 4  # rows of weight 0 may make the table so many times longer; then clients are computed one by one


class Link(ABC):
    """What outputs mean: a loss, and its derivative with respect to the outputs."""

    curvature: float
    """The largest second derivative of the loss."""
    room: float = 1.0
    """How many times smaller the curvature may well be where the model fits."""

    @abstractmethod
    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(..., C), (..., C) -> (...)."""

    @abstractmethod
    def slopes(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(..., C), (..., C) -> (..., C)."""

    @abstractmethod
    def bends(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """v, u, each (..., C): the second derivatives of the loss are diag(v) - u u', wherever the target."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over a batch whose targets have the samples' weights in the last column."""
        return (targets[..., -1] * self.losses(outputs, targets[..., :-1])).mean()


class Squares(Link):
    """ℓ = (output - target)²/2."""

    curvature = 1.0

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Half the squared distance."""
        return 0.5 * (outputs - targets).square().sum(-1)

    def slopes(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The difference itself."""
        return outputs - targets

    def bends(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """1 in every output."""
        return torch.ones_like(outputs), torch.zeros_like(outputs)


class Logistic(Link):
    """One output; the target is 0 or 1."""

    curvature = 0.25
    room = 8.0

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """-log of the probability that the model gives to the target."""
        return (nn.functional.softplus(outputs) - targets * outputs).sum(-1)

    def slopes(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Probability less target."""
        return outputs.sigmoid() - targets

    def bends(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The variance of the class."""
        return outputs.sigmoid() * (-outputs).sigmoid(), torch.zeros_like(outputs)


class Softmax(Link):
    """One output per class; the target is 1 at its class and 0 elsewhere."""

    curvature = 0.5
    room = 8.0

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """-log of the probability that the model gives to the target."""
        return outputs.logsumexp(-1) - (targets * outputs).sum(-1)

    def slopes(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Probabilities less target."""
        return outputs.softmax(-1) - targets

    def bends(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The covariances of the classes."""
        probabilities = outputs.softmax(-1)
        return probabilities, probabilities


@dataclass(frozen=True, eq=False)
class Table:
    """One client's samples: (m, d), (m, C) and the samples' weights ω, (m,), which add up to 1 over all clients."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor

    @property
    def share(self) -> float:
        """The client's share of all weight."""
        return float(self.weights.sum())


def linear_problem(
    link: Link, tables: list[Table], penalty: Penalty, intercept: bool, by_share: bool = False
) -> Problem:
    """The problem, of clients that count by their shares or alike."""
    first = tables[0]
    model = nn.Linear(first.inputs.shape[1], first.targets.shape[1], bias=intercept, dtype=first.inputs.dtype)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    longest = max(len(table.inputs) for table in tables)
    total = sum(len(table.inputs) for table in tables)
    fill = len(tables) * longest <= WASTE * total
    clients = [
        _samples(table, 1 / table.share if by_share else len(tables), longest if fill else len(table.inputs))
        for table in tables
    ]
    return Problem.build(model, link.loss, clients, regularizer=penalty)


def _samples(table: Table, factor: float, rows: int) -> Samples:
    def filled(values: Tensor) -> Tensor:
        return torch.cat([values, values.new_zeros(rows - len(values), *values.shape[1:])])

    factors = factor * rows * table.weights
    return Samples(filled(table.inputs), filled(torch.cat([table.targets, factors.unsqueeze(-1)], -1)))


def smoothness(link: Link, problem: Problem) -> float:
    """The largest curvature of a client's loss: each finds its own by power iteration on X'ΩX/m."""
    largest = 0.0
    for i in range(problem.num_clients):
        samples = problem.client_samples(i)
        X, weights = samples.inputs, samples.targets[:, -1] / len(samples)
        if any(name.endswith("bias") for name in problem.layout.names):
            X = torch.cat([X, X.new_ones(len(X), 1)], -1)
        start = (weights.unsqueeze(-1) * X.abs()).sum(0) + 1e-3 * X.new_ones(X.shape[1])

        def times(v: Tensor, X: Tensor = X, weights: Tensor = weights) -> Tensor:
            return X.T @ (weights * (X @ v))

        largest = max(largest, top_eigenvalue(times, start))
    return link.curvature * largest


def top_eigenvalue(times: Callable[[Tensor], Tensor], v: Tensor, steps: int = 100, tolerance: float = 1e-3) -> float:
    """The largest eigenvalue of a positive semidefinite matrix that is known by its products with vectors, from v on.

    The iteration approaches from below and stops when a step changes little; a tenth is added for what is missing.
    """
    value = 0.0
    for _ in range(steps):
        v = times(v / v.norm().clamp(min=torch.finfo(v.dtype).tiny))
        before, value = value, float(v.norm())
        if abs(value - before) <= tolerance * value:
            break
    return 1.1 * value


class LinearOracle(GradientOracle):
    """The clients' exact gradients by two products of matrices; clients are of equal length."""

    def __init__(self, problem: Problem, link: Link, outputs: int) -> None:
        super().__init__(problem, Training(batch_size=0))
        shape = (problem.num_clients, -1)
        self._link = link
        self._inputs = problem.train.inputs.view(*shape, problem.train.inputs.shape[-1])
        targets = problem.train.targets.view(*shape, outputs + 1)
        self._targets, self._weights = targets[..., :-1], targets[..., -1:] / self._inputs.shape[1]
        self._coefficients = outputs * self._inputs.shape[-1]
        self._outputs = outputs

    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int) -> Tensor:
        """Every client's gradient at its own row of x, (clients, p)."""
        inputs, targets, weights = self._inputs, self._targets, self._weights
        if len(clients) < self.problem.num_clients:
            inputs, targets, weights = inputs[clients], targets[clients], weights[clients]
        W = x[:, : self._coefficients].view(len(clients), self._outputs, -1)
        b = x[:, None, self._coefficients :]  # (clients, 1, C), or (clients, 1, 0) without an intercept
        outputs = inputs @ W.mT
        slopes = weights * self._link.slopes(outputs + b if b.numel() else outputs, targets)
        return torch.cat([(slopes.mT @ inputs).flatten(1), slopes.sum(1)[:, : b.shape[-1]]], -1)
