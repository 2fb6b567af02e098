"""The local work that the methods share: K steps along gradients, K corrected steps, K gradients at one point.

The methods differ in what they add to a gradient (`penalized`, a correction) and in the proximal steps; what becomes of
a gradient is up to their local update (`fedcef.optimizers`).  `method` is the method that takes the steps: its local
update, its step size and its number of steps.  `state` is the local update's, if it is not to start anew.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from fedcef.algorithms.algorithm import Algorithm, Oracle, State, Vector
from fedcef.optimizers import SGD
from fedcef.optimizers.fused import corrected_step
from fedcef.regularizers import Regularizer, Zero


class Steps(NamedTuple):
    """Where local steps led."""

    x: Vector
    state: State
    """The local update's state after them."""


class CorrectedSteps(NamedTuple):
    """Where corrected steps led, and what they went by."""

    x_hat: Vector
    g_mean: Vector
    """The mean of the K gradients, without the correction."""
    state: State
    """The local update's state after them."""


def gradient_steps(
    method: Algorithm, start: Vector, oracle: Oracle, regularizer: Regularizer = Zero(), state: State | None = None
) -> Steps:
    """K gradient steps, each followed by a proximal step of its length.

        x = start;   for k = 0..K-1:   x ← prox_{αh}(x - α g(x))

    where the local update takes the place of g.
    """
    update, local_lr, x = method.local_update, method.local_lr, start
    state = update.init(x) if state is None else state
    for k in range(method.local_steps):
        direction, state = update.update(oracle(x, k), state, x, k)
        # the oracle's gradient is ours to overwrite; another direction may be part of the update's state
        scaled = direction.mul_(local_lr) if type(update) is SGD else local_lr * direction
        x = regularizer.prox(x - scaled, local_lr)
    return Steps(x, state)


def penalized(oracle: Oracle, centre: Vector, correction: Vector, penalty: float) -> Oracle:
    """Gradients of a client's loss + ⟨correction, x⟩ + (penalty/2)|x - centre|²."""
    return lambda x, k: oracle(x, k).add_(correction).add_(x - centre, alpha=penalty)


def corrected_steps(
    method: Algorithm,
    z: Vector,
    correction: Vector,
    oracle: Oracle,
    regularizer: Regularizer = Zero(),
    state: State | None = None,
) -> CorrectedSteps:
    """K gradient steps with a constant correction and decoupled, cumulative proximal steps.

        x̂ = x = z;   for k = 0..K-1:   x̂ ← x̂ - α (g(x) + correction);   x ← prox_{(k+1)αh}(x̂)

    where the local update takes the place of g(x) + correction.  The mean of the K gradients is added up directly:
    recovering it from x̂ would lose digits.  The last proximal point is nobody's argument, so it is not computed.  The
    vectors that are this function's own are changed in place: fresh memory costs a CPU more than the arithmetic.
    """
    update, local_lr = method.local_update, method.local_lr
    state = update.init(z) if state is None else state
    g = oracle(z, 0)
    x, x_hat, g_sum = z, z.expand_as(g).clone(), torch.zeros_like(g)
    for k in range(method.local_steps):
        g = oracle(x, k) if k else g
        h, prox_step = (regularizer, (k + 1) * local_lr) if k + 1 < method.local_steps else (None, 0.0)
        if type(update) is SGD:
            x = corrected_step(x_hat, g_sum, g, correction, local_lr, h, prox_step)
        else:
            g_sum.add_(g)
            direction, state = update.update(g.add_(correction), state, x, k)
            x_hat = x_hat - local_lr * direction
            x = x_hat if h is None else h.prox(x_hat, prox_step)
    return CorrectedSteps(x_hat, g_sum.div_(method.local_steps), state)


def mean_gradient(x: Vector, oracle: Oracle, local_steps: int) -> Vector:
    """The mean of K minibatch gradients at one point: what K local steps cost, without a step.

    Methods without local steps take it, and one step of length β a round, to be comparable with the others.
    """
    g = oracle(x, 0)
    for k in range(1, local_steps):
        g.add_(oracle(x, k))
    return g.div_(local_steps)
