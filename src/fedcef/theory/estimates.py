"""Estimates of what the theorem takes as known: L, σ² and the gradients at the start.

L is a supremum over all points; what can be measured are curvatures at some of them.  Power iteration finds them from
below.  So all this says that a condition is broken more surely than that it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.oracle import make_oracle
from fedcef.problems.copying import copied
from fedcef.problems.problem import Problem

_BATCHES = 16  # minibatches of every client, from which their variance is estimated


@dataclass(frozen=True)
class Curvature:
    """The largest |eigenvalue| of Hessians at a point."""

    average: float
    """Of f, the mean of the clients' losses."""
    client: float
    """The largest of any client's loss; the theorem's L is at least this."""


class Losses:
    """Every client's mean loss on at most so many of its samples (0 = all)."""

    def __init__(self, problem: Problem, samples: int = 0) -> None:
        self.problem = problem
        self._model = copied(problem.model, shares=True).eval()
        self._samples = [problem.client_samples(i, samples or None) for i in range(problem.num_clients)]

    def loss(self, client: int) -> Callable[[Tensor], Tensor]:
        """f_i."""
        mine, problem = self._samples[client], self.problem
        return lambda x: problem.loss(problem.outputs(self._model, x, mine.inputs), mine.targets)

    def values(self, x: Tensor) -> Tensor:
        """f_i(x): (N,)."""
        with torch.no_grad():
            return torch.stack([self.loss(i)(x) for i in range(self.problem.num_clients)])

    def gradients(self, x: Tensor) -> Tensor:
        """∇f_i(x): (N, p)."""
        return torch.stack([torch.func.grad(self.loss(i))(x) for i in range(self.problem.num_clients)])

    def hessian(self, client: int, x: Tensor) -> Callable[[Tensor], Tensor]:
        """v -> ∇²f_i(x)·v; the gradient's graph is kept for as long as this is."""
        transposed = torch.func.vjp(torch.func.grad(self.loss(client)), x)[1]
        return lambda v: transposed(v)[0]

    def curvature(self, x: Tensor, iterations: int = 30, tolerance: float = 1e-3) -> Curvature:
        """At the point x, (p,)."""
        everyone = range(self.problem.num_clients)

        def mean(v: Tensor) -> Tensor:
            return torch.stack([self.hessian(i, x)(v) for i in everyone]).mean(0)

        clients = [largest_eigenvalue(self.hessian(i, x), x, iterations, tolerance) for i in everyone]
        return Curvature(largest_eigenvalue(mean, x, iterations, tolerance), max(clients))


def largest_eigenvalue(times: Callable[[Tensor], Tensor], like: Tensor, iterations: int, tolerance: float) -> float:
    """The largest |eigenvalue| of a symmetric matrix, known by its product with vectors (p,); from below.

    Power iteration from a fixed random vector, until |Av| of a unit vector grows by less than `tolerance` of itself.
    """
    v = rng.normal(rng.fixed_key(), len(like)).to(like)
    size = 0.0
    for _ in range(iterations):
        v = times(v / v.norm())
        before, size = size, float(v.norm())
        if size - before <= tolerance * size:
            break
    return size


def minibatch_variance(problem: Problem, x: Tensor, batch_size: int, seed: int = 0) -> float:
    """σ²/B at x: the largest of any client's E|g_i(x) - ∇f_i(x)|², from the spread of 16 of its minibatches."""
    if not batch_size:
        return 0.0
    training = Training(seed=seed, batch_size=batch_size)
    everyone = Rounds(training, problem.num_clients, x.device).at(0)
    gradient = make_oracle(problem, training).for_round(everyone, _BATCHES)
    mean, squares = torch.zeros_like(x), x.new_zeros(problem.num_clients)  # Welford: no table of all gradients
    for k in range(_BATCHES):
        g = gradient(x, k)
        difference = g - mean
        mean = mean + difference / (k + 1)
        squares = squares + (difference * (g - mean)).sum(-1)
    return float(squares.max()) / (_BATCHES - 1)
