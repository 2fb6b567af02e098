"""The field's synthetic lasso: sparse linear regression over heterogeneous clients, with a known support.

Each client m draws x = μ_m + N(0, Σ) with Σ_ij = 0.5^|i-j| and a mean μ_m ~ N(0, I) of its own, and
y = ⟨x, w⟩ + N(0, noise²), where w is 1 on its first `support` entries and 0 elsewhere (Yuan et al. 2021; Bao et
al. 2022).  f_i(w) = |X_i w - y_i|² / (2n).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from fedcef.core import rng
from fedcef.core.rng import Purpose
from fedcef.problems.problem import Problem
from fedcef.regularizers import Regularizer


class Linear(nn.Module):
    """x -> ⟨x, weight⟩."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, dim) -> (batch,)."""
        return x @ self.weight


def half_mean_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """Half the mean of squared residuals."""
    return 0.5 * (outputs - targets).square().mean()


def lasso(
    regularizer: Regularizer,
    *,
    num_clients: int = 64,
    samples: int = 128,
    dim: int = 1024,
    support: int = 512,
    noise: float = 1.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Problem:
    """A synthetic lasso problem; the start point is random, as in the field's experiments."""
    normal = rng.normals(seed, Purpose.SYNTHETIC)

    position = torch.arange(dim, dtype=torch.float64)
    covariance = 0.5 ** (position - position.unsqueeze(-1)).abs()
    inputs = normal(0, num_clients, samples, dim) @ torch.linalg.cholesky(covariance).T
    inputs += normal(1, num_clients, 1, dim)
    truth = (position < support).to(torch.float64)
    targets = inputs @ truth + noise * normal(2, num_clients, samples)

    inputs, targets, truth = inputs.to(dtype), targets.to(dtype), truth.to(dtype)
    problem = Problem.build(
        Linear(normal(3, dim).to(dtype)),
        half_mean_square,
        clients=list(zip(inputs, targets, strict=True)),
        regularizer=regularizer,
    )
    return replace(problem, truth=truth)
