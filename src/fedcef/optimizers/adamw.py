"""AdamW on the clients.

Loshchilov, Hutter, "Decoupled Weight Decay Regularization" (arXiv 1711.05101), as in PyTorch:

    m ← b_1 m + (1-b_1) g;   v ← b_2 v + (1-b_2) g²;   m̂ = m/(1-b_1^n);   v̂ = v/(1-b_2^n)
    the direction is m̂/(√v̂ + ε) + weight decay · x

Its metric is diagonal: with D = √v̂ + ε a step goes along m̂/D, and the proximal step that belongs to it is

    argmin_u  h(u) + Σ_j D_j (u_j - y_j)²/(2α),     of length α/D_j in entry j

(`proximal = "metric"`; Yun, Lozano, Yang, "Adaptive Proximal Gradient Methods for Structured Neural Networks", NeurIPS
2021).  x = that step from x holds where -g is a subgradient of h, whatever D is: the fixed points are those of SGD.
With `"decoupled"` the length is α in all entries, as weight decay is decoupled: any regulariser will do, and h counts
relative to gradients of size one, so that it is not the problem's F that is minimised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedcef.core.ranges import Positive, Scalar
from fedcef.optimizers.local import Metric, State
from fedcef.optimizers.server import Memory
from fedcef.optimizers.tuned import TunedUpdate


@dataclass(frozen=True, eq=False, kw_only=True)
class AdamW(TunedUpdate):
    """AdamW: every entry's step is scaled by its gradients' size; weight decay is decoupled."""

    momentum: Memory = 0.9
    """b_1: how much of the gradients is remembered."""
    decay: Memory = 0.999
    """b_2: how much of the squared gradients is remembered."""
    eps: Positive = 1e-8
    """ε, which keeps the divisor away from 0."""
    proximal: Literal["metric", "decoupled"] = "metric"
    """How long proximal steps are: as the entry's gradient step, or alike for all entries."""

    def init(self, x: Tensor) -> State:
        return {"m": torch.zeros_like(x), "v": torch.zeros_like(x), **self.count({}, x)}

    def update(self, gradient: Tensor, state: State, x: Tensor, step: int) -> tuple[Tensor, State]:
        m = torch.lerp(state["m"].expand_as(gradient), gradient, 1 - self.momentum)
        v = (self.decay * state["v"]).expand_as(gradient).addcmul(gradient, gradient, value=1 - self.decay)
        after = {"m": m, "v": v, **self.count(state, x)}
        direction = (m / self.lost(self.momentum, after, step)).div_(self._divisor(after, step))
        return self.finished(direction, x, step), after

    def _divisor(self, state: State, step: int) -> Tensor:
        return (state["v"] / self.lost(self.decay, state, step)).sqrt_().add_(self.eps)

    @property
    def metric(self) -> Metric:
        """Diagonal, unless proximal steps are decoupled."""
        return "diagonal" if self.proximal == "metric" else "plain"

    def reach(self, state: State, step: int) -> Scalar | None:
        """1/(√v̂ + ε), entry by entry; 1 where proximal steps are decoupled."""
        if self.proximal == "decoupled":
            return self.factor(step)
        return self.scaled(self._divisor(state, step).reciprocal_(), step)
