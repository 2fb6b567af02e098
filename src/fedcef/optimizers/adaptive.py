"""Servers that scale every entry of the step by its own history: Adam, Yogi, Adagrad.

Reddi et al., "Adaptive Federated Optimization" (arXiv 2003.00295), algorithm 2.  With d the clients' mean change:

    m ← b_1 m + (1-b_1) d;   v ← next(v, d²);   the step is m / (√v + τ)
    Adam:      next(v, d²) = b_2 v + (1-b_2) d²
    Yogi:      next(v, d²) = v - (1-b_2) d² sign(v - d²)
    Adagrad:   next(v, d²) = v + d²

entry by entry, from m = 0 and v = τ², and without Adam's correction for the start, as in that algorithm.  The authors'
experiments, by the notes with their code, start from v = 0 and use the optimisers of Keras, of which Adam corrects for
the start and Adagrad has no momentum; so b_1 = 0 is Adagrad's default here.  Flower's strategies start from v = 0, too.

A step has the size of η_g in every entry, whatever the size of the gradients: η_g = 0.01 is a beginning, and 1 far too
much.  Entries are scaled one by one, and a proximal step of one length for all does not go with that: where a method
takes one on the server, choose `composite = "subgradient"` (algorithms/fedopt.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.core.ranges import Positive, UnitInterval
from fedcef.optimizers.local import State
from fedcef.optimizers.server import Memory, ServerUpdate


@dataclass(frozen=True, eq=False)
class Adaptive(ServerUpdate, ABC):
    """A server update that divides by the root of what it remembers of squared changes."""

    momentum: Memory = 0.9
    """b_1: how much of the mean change is remembered."""
    floor: Positive = 1e-3
    """τ, which keeps the divisor away from 0; the smaller, the more the steps adapt."""

    def init(self, z: Tensor) -> State:
        return {"m": torch.zeros_like(z), "v": torch.full_like(z, self.floor**2)}

    def update(self, mean: Tensor, state: State) -> tuple[Tensor, State]:
        m = self.momentum * state["m"] + (1 - self.momentum) * mean
        v = self.remembered(state["v"], mean.square())
        return m / (v.sqrt() + self.floor), {"m": m, "v": v}

    @abstractmethod
    def remembered(self, v: Tensor, square: Tensor) -> Tensor:
        """What is remembered of squared changes after one more."""


@dataclass(frozen=True, eq=False)
class Adam(Adaptive):
    """Adam: squared changes are forgotten exponentially."""

    decay: UnitInterval = 0.99
    """b_2: how much of the squared changes is remembered."""

    def remembered(self, v: Tensor, square: Tensor) -> Tensor:
        return self.decay * v + (1 - self.decay) * square


@dataclass(frozen=True, eq=False)
class Yogi(Adaptive):
    """Yogi: the memory of squared changes moves by at most the latest of them."""

    decay: UnitInterval = 0.99
    """b_2: 1 minus the share of the last squared change by which the memory moves."""

    def remembered(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.decay) * square * (v - square).sign()


@dataclass(frozen=True, eq=False)
class Adagrad(Adaptive):
    """Adagrad: squared changes add up, so that steps shrink."""

    momentum: Memory = 0.0

    def remembered(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square
