"""The local steps that the methods share."""

from __future__ import annotations

import torch

from fedcef.algorithms.algorithm import Oracle, Vector
from fedcef.core.ranges import Scalar
from fedcef.optimizers.fused import corrected_step
from fedcef.regularizers import Regularizer


def corrected_steps(
    z: Vector, correction: Vector, oracle: Oracle, regularizer: Regularizer, local_lr: Scalar, local_steps: int
) -> tuple[Vector, Vector]:
    """K gradient steps with a constant correction and decoupled, cumulative proximal steps.

        x̂ = x = z;   for k = 0..K-1:   x̂ ← x̂ - α (g(x) + correction);   x ← prox_{(k+1)αh}(x̂)

    Returns x̂ after K steps and the mean of the K gradients, which is added up directly: recovering it from
    x̂ would lose digits.  The last proximal point is nobody's argument, so it is not computed.  The two vectors
    that are this function's own are changed in place: fresh memory costs a CPU more than the arithmetic.
    """
    g = oracle(z, 0)
    x_hat, g_sum = z.expand_as(g).clone(), torch.zeros_like(g)
    for k in range(1, local_steps):
        g = oracle(corrected_step(x_hat, g_sum, g, correction, local_lr, regularizer, k * local_lr), k)
    corrected_step(x_hat, g_sum, g, correction, local_lr, None, 0.0)
    return x_hat, g_sum.div_(local_steps)


def penalized_steps(
    start: Vector,
    centre: Vector,
    correction: Vector,
    penalty: float,
    oracle: Oracle,
    local_lr: Scalar,
    local_steps: int,
) -> Vector:
    """K gradient steps on a client's loss + ⟨correction, x⟩ + (penalty/2)|x - centre|².

        x = start;   for k = 0..K-1:   x ← x - α (g(x) + correction + penalty·(x - centre))

    Returns x.
    """
    x = start
    for k in range(local_steps):
        slope = oracle(x, k).add_(correction).add_(x - centre, alpha=penalty)
        x = x - slope.mul_(local_lr)
    return x


def mean_gradient(x: Vector, oracle: Oracle, local_steps: int) -> Vector:
    """The mean of K minibatch gradients at one point: what K local steps cost, without a step.

    Methods without local steps take it, and one step of length β a round, to be comparable with the others.
    """
    g = oracle(x, 0)
    for k in range(1, local_steps):
        g.add_(oracle(x, k))
    return g.div_(local_steps)
