"""SGD with momentum on the clients.

    m ← γ m + g;   the direction is m, or with Nesterov's look ahead g + γ m

as in PyTorch's SGD; weight decay is decoupled here.  After n steps along one gradient g the memory is
(1 + γ + … + γ^{n-1}) g, so that the direction is s·g with s = (1 - γ^n)/(1 - γ), or 1 + γ s with Nesterov's.  Proximal
steps have the length α·s.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.core.ranges import Scalar
from fedcef.optimizers.local import Metric, State
from fedcef.optimizers.server import Memory
from fedcef.optimizers.tuned import TunedUpdate


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalMomentum(TunedUpdate):
    """SGD with momentum: the direction is the gradient and a share of the last direction."""

    momentum: Memory = 0.9
    """γ: how much of the last direction is repeated."""
    nesterov: bool = False
    """Whether the direction looks ahead to where the momentum leads."""

    def init(self, x: Tensor) -> State:
        return {"m": torch.zeros_like(x), **self.count({}, x)}

    def update(self, gradient: Tensor, state: State, x: Tensor, step: int) -> tuple[Tensor, State]:
        m = self.momentum * state["m"] + gradient
        direction = gradient + self.momentum * m if self.nesterov else m.clone()
        return self.finished(direction, x, step), {"m": m, **self.count(state, x)}

    def reach(self, state: State, step: int) -> Scalar | None:
        """(1 - γ^n)/(1 - γ) after n steps, or 1 + γ times that; by entry where groups differ."""
        s = self.lost(self.momentum, state, step) / (1 - self.momentum)
        s = 1 + self.momentum * s if self.nesterov else s
        return (
            self.scaled(s * torch.ones_like(state["m"]), step) if self.metric == "diagonal" else s * self.factor(step)
        )

    @property
    def metric(self) -> Metric:
        """Plain, but with factors on the step size of some parameters."""
        return "diagonal" if self.lr_factors else "plain"

    def repeats(self, step: int) -> float:
        """s after so many steps of the round; its limit where memory is kept."""
        if self.kept:
            return 1 / (1 - self.momentum)
        s = (1 - self.momentum ** (step + 1)) / (1 - self.momentum)
        return 1 + self.momentum * s if self.nesterov else s
