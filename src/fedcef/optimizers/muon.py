"""Muon on the clients: momentum whose matrices are made orthogonal; AdamW for everything else.

Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), as in the authors' code:

    m ← b m + (1-b) g;   y = (1-b) g + b m, or m without Nesterov's look ahead
    the direction is r · orthogonal(y) + weight decay · x,     y as a matrix: rows × everything else

orthogonal(U Σ Vᵀ) = U Vᵀ, by five turns of the quintic X ← aX + (bA + cA²)X, A = XXᵀ, from y/|y|, which leads singular
values to about one, 0.7 to 1.2, and no nearer.  `scale` chooses r: "spectral" is the authors' √max(1, rows/columns),
with a step size of its own; "rms" is 0.2·√max(rows, columns) (Liu et al., "Muon is scalable for LLM training", arXiv
2502.16982), with which entries move as far as AdamW's do, so that one step size serves both.  Parameters with less than
two axes, and those that `adamw_on` names, go by AdamW.

An orthogonal matrix is no multiple of the gradient, entry by entry or otherwise: there is no metric in which a proximal
step would be closed, so h needs `proximal = "decoupled"`, of length α in all entries (adamw.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.ranges import Positive, Scalar
from fedcef.optimizers.adamw import AdamW
from fedcef.optimizers.local import Metric, State
from fedcef.optimizers.server import Memory
from fedcef.optimizers.tuned import Patterns, TunedUpdate, matches

QUINTIC = (3.4445, -4.7750, 2.0315)
"""a, b and c, which lift small singular values fastest."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Muon(TunedUpdate):
    """Muon: orthogonal steps for matrices, AdamW's for the other parameters."""

    momentum: Memory = 0.95
    """b: how much of the matrices' gradients is remembered."""
    nesterov: bool = True
    """Whether the direction looks ahead to where the momentum leads."""
    turns: Annotated[int, Field(ge=1, le=50)] = 5
    """How often the quintic is applied."""
    scale: Literal["rms", "spectral"] = "rms"
    """How long orthogonal steps are: their entries like AdamW's, or by the spectral norm as in the authors' code."""
    arithmetic: Literal["bfloat16", "native"] = "bfloat16"
    """The arithmetic of the quintic: the authors', or that of the vectors."""
    adamw_on: Patterns = ("*embed*", "*head*")
    """Names of matrices that go by AdamW all the same."""
    adam_momentum: Memory = 0.9
    """AdamW's b_1."""
    adam_decay: Memory = 0.95
    """AdamW's b_2."""
    eps: Positive = 1e-8
    """AdamW's ε."""
    proximal: Literal["none", "decoupled"] = "none"
    """How a regulariser enters: not at all, or by proximal steps that are alike for all entries."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "adamw_on", (self.adamw_on,) if isinstance(self.adamw_on, str) else self.adamw_on)

    @cached_property
    def _others(self) -> AdamW:
        return AdamW(momentum=self.adam_momentum, decay=self.adam_decay, eps=self.eps, memory=self.memory)

    @cached_property
    def _matrices(self) -> list[tuple[slice, tuple[int, int]]]:
        """The stretches that are matrices, and their rows and columns."""
        if self.layout is None:
            raise ConfigError("Muon must know which parameters are matrices; fit(layout) the local update first.")
        return [
            (stretch, (shape[0], math.prod(shape[1:])))
            for name, stretch, shape in self.layout.segments()
            if len(shape) > 1 and not matches(name, self.adamw_on)
        ]

    @cached_property
    def _rest(self) -> list[slice]:
        """The stretches between them."""
        assert self.layout is not None
        ends = [0, *(end for stretch, _ in self._matrices for end in (stretch.start, stretch.stop)), self.layout.size]
        pairs = zip(ends[::2], ends[1::2], strict=True)
        return [slice(start, stop) for start, stop in pairs if start < stop]

    def init(self, x: Tensor) -> State:
        m = _joined(x, [stretch for stretch, _ in self._matrices])
        others = self._others.init(_joined(x, self._rest))
        return {"m": torch.zeros_like(m), **{f"adam_{name}": vector for name, vector in others.items()}}

    def update(self, gradient: Tensor, state: State, x: Tensor, step: int) -> tuple[Tensor, State]:
        g = _joined(gradient, [stretch for stretch, _ in self._matrices])
        m = torch.lerp(state["m"].expand_as(g), g, 1 - self.momentum)
        ahead = torch.lerp(g, m, self.momentum) if self.nesterov else m
        adam = {name.removeprefix("adam_"): vector for name, vector in state.items() if name.startswith("adam_")}
        others, adam = self._others.update(_joined(gradient, self._rest), adam, x, step)
        direction, start = torch.empty_like(gradient), 0
        for stretch, shape in self._matrices:
            size = stretch.stop - stretch.start
            matrix = ahead[..., start : start + size].reshape(*ahead.shape[:-1], *shape)
            direction[..., stretch] = (self._length(*shape) * self._orthogonal(matrix)).flatten(-2)
            start += size
        start = 0
        for stretch in self._rest:
            size = stretch.stop - stretch.start
            direction[..., stretch] = others[..., start : start + size]
            start += size
        after = {"m": m, **{f"adam_{name}": vector for name, vector in adam.items()}}
        return self.finished(direction, x, step), after

    def _length(self, rows: int, columns: int) -> float:
        return 0.2 * math.sqrt(max(rows, columns)) if self.scale == "rms" else math.sqrt(max(1, rows / columns))

    def _orthogonal(self, matrix: Tensor) -> Tensor:
        inner = matrix.to(torch.bfloat16) if self.arithmetic == "bfloat16" else matrix
        return orthogonal(inner, self.turns).to(matrix.dtype)

    @property
    def metric(self) -> Metric:
        """None that is closed, unless proximal steps are decoupled."""
        return "plain" if self.proximal == "decoupled" else "none"

    def reach(self, state: State, step: int) -> Scalar | None:
        """1, or what the schedule makes of it: proximal steps are decoupled."""
        return self.factor(step)


def orthogonal(matrix: Tensor, turns: int) -> Tensor:
    """About U Vᵀ of matrices U Σ Vᵀ, (..., rows, columns), by so many turns of the quintic; zero for zero."""
    a, b, c = QUINTIC
    wide = matrix.shape[-2] <= matrix.shape[-1]
    x = matrix if wide else matrix.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(turns):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    turned: Tensor = x if wide else x.mT
    return turned


def _joined(x: Tensor, stretches: list[slice]) -> Tensor:
    """The entries of these stretches as one vector (..., q)."""
    return torch.cat([x[..., stretch] for stretch in stretches], dim=-1) if stretches else x[..., :0]
