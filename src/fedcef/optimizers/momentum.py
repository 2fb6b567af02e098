"""Momentum on the server.

FedAvgM: Hsu, Qi, Brown 2019 (arXiv 1909.06335).  With d the clients' mean change and γ the momentum:

    m ← γ m + d;   the step is m, or with Nesterov's look ahead d + γ m

The first is also what the Flower strategy FedAvgM computes, the second is PyTorch's SGD with nesterov=True.  A constant
change d leads to steps d/(1-γ) in both, which is their gain.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.optimizers.local import State
from fedcef.optimizers.server import Memory, ServerUpdate


@dataclass(frozen=True, eq=False)
class Momentum(ServerUpdate):
    """Momentum: the step is the mean change and a share of the last step."""

    momentum: Memory = 0.9
    """γ: how much of the last step is repeated."""
    nesterov: bool = False
    """Whether the step looks ahead to where the momentum leads."""

    @property
    def gain(self) -> float:
        """1/(1-γ)."""
        return 1 / (1 - self.momentum)

    def init(self, z: Tensor) -> State:
        return {"m": torch.zeros_like(z)}

    def update(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        m = self.momentum * state["m"] + mean
        return (mean + self.momentum * m if self.nesterov else m), {"m": m}
