"""Noise that the server adds once to the sum of its clients' messages: any method whose messages are on a grid.

    sum of the q·Δ, (k,)   ←   sum of the q·Δ + σ B ξ,      ξ standard normal, B the largest norm of a client's q·Δ

which the mean, and all that follows from it, is then computed from.  The noise is in the entries that were sent; the
method itself sees none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, Message, Received, State
from fedcef.compressors.on_grid import OnGrid, Summed
from fedcef.core.parts import BY_ENGINE
from fedcef.core.rng import Key, normal

Draw = Callable[[OnGrid, Tensor], Tensor]
"""draw(sum, key): a standard normal number for every number of a sum, float64; the key is the round's."""


def simulated(total: OnGrid, key: Tensor) -> Tensor:
    """Noise that everyone can repeat who has the seed: right for a simulation, and no privacy at all."""
    return normal(Key(key, key).noise, total.steps.shape[-1])


def noisy(algorithm: Algorithm, deviation: float) -> Algorithm:
    """The method with noise of this standard deviation in every entry of a sum."""
    kind = type(algorithm)
    made: Any = dataclass(frozen=True, kw_only=True, eq=False)(
        type(kind.__name__, (Noisy, kind), {"__module__": kind.__module__})
    )
    options = {one.name: getattr(algorithm, one.name) for one in fields(algorithm)}
    noised: Algorithm = made(**options, deviation=deviation)
    return noised


@dataclass(frozen=True, kw_only=True, eq=False)
class Noisy(Algorithm):
    """Comes before a method among the bases of a class, and adds noise to what its server has received."""

    deviation: float = field(default=0.0, metadata=BY_ENGINE)
    """σB: of the noise in every entry of a sum."""
    draw: Draw = field(default=simulated, metadata=BY_ENGINE)
    """Where ξ comes from; a deployed server puts its own secret source here."""

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        """The method's, after noise."""
        means = {name: mean + self._noise(received, name) for name, mean in received.mean.items()}
        return super().server_step(server, replica, replace(received, mean=means))  # type: ignore[safe-super]

    def _noise(self, received: Received, name: str) -> Tensor:
        stack = received.stacks[name]
        assert isinstance(stack, OnGrid | Summed)
        total = stack.summed()
        steps = self.deviation * 2.0**-total.exponent * self.draw(total, received.key)
        added = replace(total, steps=steps.to(total.steps.dtype)).dense()
        return added / torch.full((), stack.lead[0], dtype=added.dtype, device=added.device)
