"""Rounds that end at random, as those of Scaffnew and of the methods that grew out of it.

They are published as one sequence of local steps: after each of them everybody communicates with probability θ (the
papers' p), by a coin that all share.  So a round has a geometric number of steps L, 1/θ on average.  Here:

    θ not given (0)   L = K in every round, and θ is 1/K: equal work for all methods
    θ > 0             L is drawn from the round's shared key and cut off at K, as if the coin always fell after K steps

K gradients are computed in either case, and those beyond L change nothing.  So shapes and the number of calls do not
depend on the draw, and L is not read back.  The fixed points do not depend on L, nor on θ.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Oracle, Vector
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.core.ranges import UnitInterval
from fedcef.core.rng import Key, uniform

_STEPS = -1  # parts of a vector, which share keys of their own, are counted from 0


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomSteps(SmoothMethod, ABC):
    """A method whose rounds may have a random number of local steps."""

    probability: UnitInterval = 0.0
    """θ: how likely a round ends after a local step; it ends after K steps at the latest.  0: it has K steps, and θ is
    1/K."""

    @property
    def mean_steps(self) -> float:
        """1/θ."""
        return 1 / self.probability if self.probability else self.local_steps

    @property
    def step(self) -> float:
        """β = α·η_g/θ."""
        return self.local_lr * self.server_lr * self.mean_steps

    def steps_in(self, key: Key) -> Tensor:
        """L, the number of steps in the round with this key: 0-dim, int64."""
        u = uniform(key.of_part(_STEPS), 1)[0]
        if self.probability < 1:
            drawn = 1 + (torch.log1p(-u) / math.log1p(-self.probability)).floor()
        else:
            drawn = torch.ones_like(u)
        return drawn.clamp(max=self.local_steps).to(torch.int64)

    def until_the_end(self, oracle: Oracle, correction: Vector, key: Key) -> Oracle:
        """Gradients that, with the correction added, are 0 in steps after the round's last."""
        if not self.probability:
            return oracle
        last = self.steps_in(key)
        return lambda x, k: torch.where(k < last, oracle(x, k), -correction)
