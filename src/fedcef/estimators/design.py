"""The clients' samples of a linear model: what is asked of them, and the answer where features lie in dense tables.

sparse.py has the answer for sparse ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.estimators.linear import LinearOracle, Link, Table, linear_problem, smoothness
from fedcef.estimators.penalties import Penalty
from fedcef.estimators.scaling import Scaling
from fedcef.oracles.oracle import GradientOracle
from fedcef.problems.problem import Problem

PIECE = 1000  # samples that are looked at together


class Design(ABC):
    """All clients' samples, with features that are scaled alike for everyone."""

    shares: Tensor
    """Each client's share of all weight, (N,)."""
    scaling: Scaling
    """How the features were scaled."""

    @abstractmethod
    def problem(self, link: Link, penalty: Penalty, intercept: bool, by_share: bool) -> Problem:
        """The problem, of clients that count by their shares or alike."""

    @abstractmethod
    def whole(self, link: Link, penalty: Penalty, intercept: bool) -> Problem:
        """The same with all samples at one client, where objective and gradient are looked at."""

    @abstractmethod
    def oracle(self, problem: Problem, link: Link) -> GradientOracle | None:
        """Gradients in closed form; None where those of any module are as good."""

    @abstractmethod
    def smoothness(self, link: Link, problem: Problem) -> float:
        """The largest curvature of a client's loss."""

    @abstractmethod
    def columns(self, features: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Some features of all samples piece by piece, (m, k), with the samples' weights, (m,)."""

    @abstractmethod
    def outputs(self, coefficients: Tensor, intercepts: Tensor) -> Iterator[Tensor]:
        """The model's outputs for the same pieces, (m, C)."""


@dataclass(frozen=True, eq=False)
class DenseDesign(Design):
    """A dense table for every client."""

    tables: list[Table]
    scaling: Scaling

    @classmethod
    def scaled(cls, tables: list[Table], centre: bool) -> DenseDesign:
        """Scale the features of these tables, and centre them where there is an intercept."""
        scaling = Scaling.of(tables, centre)
        return cls(scaling.apply(tables), scaling)

    @property
    def shares(self) -> Tensor:  # type: ignore[override]
        """Each client's share of all weight, (N,)."""
        return torch.tensor([table.share for table in self.tables], dtype=torch.float64)

    def problem(self, link: Link, penalty: Penalty, intercept: bool, by_share: bool) -> Problem:
        return linear_problem(link, self.tables, penalty, intercept, by_share)

    def whole(self, link: Link, penalty: Penalty, intercept: bool) -> Problem:
        return linear_problem(link, [self._joined], penalty, intercept)

    def oracle(self, problem: Problem, link: Link) -> GradientOracle | None:
        equal = int(problem.sizes.min()) == int(problem.sizes.max())
        return LinearOracle(problem, link, problem.layout.shapes[0][0]) if equal else None

    def smoothness(self, link: Link, problem: Problem) -> float:
        return smoothness(link, problem)

    def columns(self, features: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for table in self.tables:
            for inputs, weights in zip(
                torch.split(table.inputs, PIECE), torch.split(table.weights, PIECE), strict=True
            ):
                yield inputs[:, features], weights

    def outputs(self, coefficients: Tensor, intercepts: Tensor) -> Iterator[Tensor]:
        for table in self.tables:
            for inputs in torch.split(table.inputs, PIECE):
                yield inputs @ coefficients.T + intercepts

    @property
    def _joined(self) -> Table:
        parts = [(table.inputs, table.targets, table.weights) for table in self.tables]
        return Table(*(torch.cat(part) for part in zip(*parts, strict=True)))
