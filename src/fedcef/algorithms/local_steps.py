"""The local work that the methods share: K steps along gradients, K corrected steps, K gradients at one point.

The methods differ in what they add to a gradient (`penalized`, a correction) and in the proximal steps; what becomes of
a gradient is up to their local update (`fedcef.optimizers`).  `method` is the method that takes the steps: its local
update, its step size and its number of steps.  `state` is the local update's, if it is not to start anew.

The length of a proximal step is α times the update's `reach`: 1 for SGD, more with momentum, one for each entry in the
metric of AdamW (docs/algorithms.md, section 13).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from fedcef.algorithms.algorithm import Algorithm, Oracle, State, Vector
from fedcef.core.ranges import Scalar
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
    """The mean of the K gradients, without the correction; or of the K directions, if those are what is corrected."""
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
        reach = _reach(method, state, k, regularizer)
        x = regularizer.prox(torch.sub(x, scaled, out=scaled), local_lr if reach is None else local_lr * reach)
    return Steps(x, state)


def _reach(method: Algorithm, state: State, k: int, regularizer: Regularizer) -> Scalar | None:
    """The update's reach in the k-th step, where a proximal step has a use for it."""
    return None if isinstance(regularizer, Zero) else method.local_update.reach(state, k)


def _weight(method: Algorithm, state: State, k: int) -> Scalar:
    """How much of a mean direction belongs to the k-th step: where directions grow in a round, corrections must."""
    update = method.local_update
    reach = update.reach(state, k) if update.metric == "plain" else None
    return 1.0 if reach is None else reach / update.gain(method.local_steps)


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
    *,
    corrected: Literal["gradients", "directions"] = "gradients",
) -> CorrectedSteps:
    """K gradient steps with a constant correction and decoupled, cumulative proximal steps.

        x̂ = x = z;   for k = 0..K-1:   x̂ ← x̂ - α (g(x) + correction);   x ← prox_{(k+1)αh}(x̂)

    where the local update takes the place of g(x) + correction, or, if `directions` are corrected, that of g(x).  The
    mean of the K gradients (or directions) is added up directly: recovering it from x̂ would lose digits.  The last
    proximal point is nobody's argument, so it is not computed.  The vectors that are this function's own are changed in
    place: fresh memory costs a CPU more than the arithmetic.
    """
    update, local_lr = method.local_update, method.local_lr
    state = update.init(z) if state is None else state
    g = oracle(z, 0)
    x, x_hat, total = z, z.expand_as(g).clone(), torch.zeros_like(g)
    reached: Scalar = 0.0
    for k in range(method.local_steps):
        g = oracle(x, k) if k else g
        h = regularizer if k + 1 < method.local_steps else None
        if type(update) is SGD:
            x = corrected_step(x_hat, total, g, correction, local_lr, h, 0.0 if h is None else (k + 1) * local_lr)
            continue
        if corrected == "gradients":
            total.add_(g)
            direction, state = update.update(g.add_(correction), state, x, k)
        else:
            direction, state = update.update(g, state, x, k)
            total.add_(direction)
            direction = direction + _weight(method, state, k) * correction
        x_hat = x_hat - local_lr * direction
        if h is None:
            continue
        reach = _reach(method, state, k, h)
        reached = reached if reach is None else reached + reach
        x = h.prox(x_hat, (k + 1) * local_lr if reach is None else local_lr * reached)
    return CorrectedSteps(x_hat, total.div_(method.local_steps), state)


def mean_gradient(x: Vector, oracle: Oracle, local_steps: int) -> Vector:
    """The mean of K minibatch gradients at one point: what K local steps cost, without a step.

    Methods without local steps take it, and one step of length β a round, to be comparable with the others.
    """
    g = oracle(x, 0)
    for k in range(1, local_steps):
        g.add_(oracle(x, k))
    return g.div_(local_steps)
