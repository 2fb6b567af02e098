"""The exact optimum of a convex problem, by a centralised solver.

Accelerated proximal gradient descent (FISTA; Beck, Teboulle 2009) with backtracking, restarted when it turns away from
descent (O'Donoghue, Candès 2015), in float64, on all clients' data at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcef.core.errors import ProblemError
from fedcef.core.training import Weighting
from fedcef.problems.problem import Problem
from fedcef.simulation.evaluation import Evaluator


def solve(
    problem: Problem,
    *,
    weighting: Weighting = "uniform",
    tolerance: float = 1e-6,
    iterations: int = 20000,
    clients: int = 0,
) -> tuple[Tensor, float]:
    """The minimiser z*, (p,) in float64, and F(z*); stops when |G| is at most `tolerance`.

    F is taken over the clients that an `Evaluator` with `clients` looks at.  The answer is the optimum only if the
    problem is convex.
    """
    exact = problem.to(problem.z0.device, torch.float64)
    evaluator = Evaluator(exact, step=1.0, weighting=weighting, clients=clients)
    h = exact.regularizer
    z = y = exact.z0
    momentum, smoothness = 1.0, 1.0
    for _ in range(iterations):
        loss, gradient = evaluator.loss_and_gradient(y)
        while True:
            moved = h.prox(y - gradient / smoothness, 1 / smoothness)
            change = moved - y
            bound = loss + gradient @ change + 0.5 * smoothness * change.square().sum()
            if evaluator.loss(moved) <= bound + 1e-12 * bound.abs():
                break
            smoothness *= 2
        if float(smoothness * change.norm()) <= tolerance:
            return moved, float(evaluator.loss(moved) + h.value(moved))
        if float(change @ (moved - z)) < 0:  # momentum leads uphill
            momentum = 1.0
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        y = moved + (momentum - 1) / following * (moved - z)
        z, momentum = moved, following
    raise ProblemError(
        f"The centralised solver did not reach |G| = {tolerance:g} in {iterations} steps; "
        "set eval.optimum = false, or make the problem better conditioned."
    )
