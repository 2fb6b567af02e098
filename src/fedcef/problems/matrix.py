"""The field's low-rank regression: a matrix of known rank over heterogeneous clients.

Each client m draws X = M_m + N(0, 1) entry by entry, with a mean M_m ~ N(0, heterogeneity²) of its own, and
y = ⟨X, W⟩ + N(0, noise²), where W = diag(1, …, 1, 0, …, 0) has `rank` ones (Yuan et al. 2021; Bao et al. 2022).
f_i(W) = Σ (⟨X, W⟩ - y)² / (2n).  A client's mean makes f_i steep in one direction: its smoothness is about
|M_m|² ≈ size²·heterogeneity², on top of (1 + size/√n)² that the scatter gives.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from fedcef.core import rng
from fedcef.core.rng import Purpose
from fedcef.problems.lasso import half_mean_square
from fedcef.problems.problem import Problem
from fedcef.regularizers import Regularizer


class Inner(nn.Module):
    """X -> ⟨X, weight⟩, both matrices."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, size, size) -> (batch,)."""
        return x.flatten(-2) @ self.weight.flatten()


def low_rank(
    regularizer: Regularizer,
    *,
    num_clients: int = 64,
    samples: int = 128,
    size: int = 32,
    rank: int = 16,
    heterogeneity: float = 1.0,
    noise: float = 1.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Problem:
    """A synthetic low-rank problem; the start point is 0."""
    normal = rng.normals(seed, Purpose.SYNTHETIC)

    truth = torch.diag((torch.arange(size) < rank).to(torch.float64))
    inputs = normal(0, num_clients, samples, size, size) + heterogeneity * normal(1, num_clients, 1, size, size)
    targets = inputs.flatten(-2) @ truth.flatten() + noise * normal(2, num_clients, samples)

    inputs, targets, truth = inputs.to(dtype), targets.to(dtype), truth.to(dtype)
    problem = Problem.build(
        Inner(torch.zeros_like(truth)),
        half_mean_square,
        clients=list(zip(inputs, targets, strict=True)),
        regularizer=regularizer,
    )
    return replace(problem, truth=truth.flatten())
