"""Regularisers of singular values: low-rank weight matrices.

A tensor with two or more axes is read as the matrix (first axis) x (all others): a convolution's kernel is
(out, in·kh·kw).  Tensors with fewer axes (biases) are left alone.  Each prox takes one singular value decomposition of
every matrix, O(rows·columns·min(rows, columns)), on all clients at once.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.core.ranges import NonNegative, Positive
from fedcef.regularizers.constraints import Constraint, indicator, slack, to_simplex
from fedcef.regularizers.regularizer import Regularizer, Step, check_stretches


class Matrix(NamedTuple):
    """A stretch of the vector that is read as a matrix, row by row."""

    start: int
    rows: int
    columns: int

    @property
    def stretch(self) -> slice:
        """Its place in the flat vector."""
        return slice(self.start, self.start + self.rows * self.columns)

    def of(self, x: Tensor) -> Tensor:
        """(..., p) -> (..., rows, columns)."""
        return x[..., self.stretch].reshape(*x.shape[:-1], self.rows, self.columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Spectral(Regularizer, ABC):
    matrices: tuple[Matrix, ...] = ()
    """Where the matrices are, as (first position, rows, columns); if none are given, `fit` takes the parameter tensors
    with two or more axes."""

    def fit(self, layout: Layout) -> Self:
        found = self.matrices or tuple(
            Matrix(stretch.start, shape[0], math.prod(shape[1:]))
            for _, stretch, shape in layout.segments()
            if len(shape) >= 2 and 0 not in shape
        )
        if not found:
            raise ConfigError(
                f"The regulariser finds no matrix: none of {', '.join(layout.names)} has two or more axes.  Choose "
                "other parameters with regularizer.on, or give regularizer.matrices."
            )
        check_stretches("regularizer.matrices", [m.stretch for m in found], layout.size)
        return replace(self, matrices=found)

    @property
    def captures(self) -> bool:
        return False

    def spectra(self, x: Tensor) -> list[Tensor]:
        """The singular values of every matrix: (..., min(rows, columns))."""
        parts = [_finite(matrix.of(x)) for matrix in self._known()]
        return [torch.where(fine.squeeze(-1), torch.linalg.svdvals(entries), math.nan) for entries, fine in parts]

    def _known(self) -> tuple[Matrix, ...]:
        if not self.matrices:
            raise ConfigError(
                f"{type(self).__name__} does not know which entries make a matrix: call fit(problem.layout), or give "
                "matrices = ((first position, rows, columns), ...)."
            )
        return self.matrices

    def _with_spectra(self, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """x with the singular values of every matrix changed; a matrix that keeps its own stays as it is."""
        result = x.clone()
        for matrix in self._known():
            entries, fine = _finite(matrix.of(x))
            left, old, right = torch.linalg.svd(entries, full_matrices=False)
            new = change(old)
            same = (new == old).all(-1)[..., None, None]
            changed = torch.where(same, entries, (left * new.unsqueeze(-2)) @ right)
            result[..., matrix.stretch] = torch.where(fine, changed, math.nan).flatten(-2)
        return result


@dataclass(frozen=True, eq=False)
class Nuclear(_Spectral):
    """h(x) = weight·Σ_matrices (the sum of its singular values).

    prox: W = U·diag(s)·Vᵀ becomes U·diag(max(s - step·weight, 0))·Vᵀ.
    """

    weight: NonNegative = 1e-5
    """λ: how much h counts against the loss."""

    def value(self, x: Tensor) -> Tensor:
        return self.weight * torch.stack([spectrum.sum(-1) for spectrum in self.spectra(x)]).sum(0)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return self._with_spectra(x, lambda s: (s - step * self.weight).clamp(min=0))

    def bounded_subgradient(self, dim: int) -> float:
        return self.weight * math.sqrt(sum(min(m.rows, m.columns) for m in self._known()))


@dataclass(frozen=True, eq=False)
class NuclearBall(_Spectral, Constraint):
    """C = {the singular values of each matrix add up to at most `radius`}.

    prox: the singular values of a matrix outside are projected onto the simplex; a matrix inside stays as it is.
    """

    radius: Positive = 1.0
    """What the singular values of a matrix add up to at most."""

    def value(self, x: Tensor) -> Tensor:
        limit = self.radius * (1 + slack(x))
        return indicator(torch.stack([s.sum(-1) <= limit for s in self.spectra(x)]).all(0), x)

    def prox(self, x: Tensor, step: Step) -> Tensor:
        return self._with_spectra(x, self._project)

    def _project(self, spectrum: Tensor) -> Tensor:
        inside = spectrum.sum(-1, keepdim=True, dtype=torch.float64) <= self.radius
        return torch.where(inside, spectrum, to_simplex(spectrum, self.radius))


def _finite(entries: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices, zero where one has an entry that is no finite number, and which ones are fine: (..., 1, 1).

    LAPACK refuses such matrices; a run that diverges should end with its own message.
    """
    fine = entries.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
    return torch.where(fine, entries, 0), fine
