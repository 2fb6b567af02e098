"""The interface of a regulariser h: its value, its proximal operator, and what a report says of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.core.parts import validate

Step = float | Tensor
"""The length of a proximal step: a number, or a tensor that broadcasts over the clients' axes (its last axis is 1).

Where a regulariser is `elementwise`, the last axis may be p: a length for every entry, the proximal step in a diagonal
metric."""


class Regularizer(ABC):
    """A regulariser h; a subclass is a frozen dataclass of its options.

    Everything works on one vector (p,) and on stacks of them, (..., p).  A subclass defines `value`, `prox` and
    `bounded_subgradient`, and overrides what else is not so for it.
    """

    def __post_init__(self) -> None:
        validate(self)

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """h(x): (..., p) -> (...)."""

    @abstractmethod
    def prox(self, x: Tensor, step: Step) -> Tensor:
        """argmin_u h(u) + |u - x|² / (2·step): (..., p) -> (..., p)."""

    def fit(self, layout: Layout) -> Regularizer:
        """The regulariser for vectors of this layout; most do not care."""
        return self

    def subgradient(self, x: Tensor) -> Tensor:
        """One subgradient of h at x, for methods that know no proximal step: (..., p) -> (..., p)."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            total = self.value(x).sum()
            if not total.requires_grad:
                return torch.zeros_like(x)
            return torch.autograd.grad(total, x)[0]

    @abstractmethod
    def bounded_subgradient(self, dim: int) -> float | None:
        """A bound on |h'|_2 over all subgradients at all points of this length; None if there is none."""

    @property
    def weak_convexity(self) -> float:
        """The least ρ for which h + (ρ/2)|x|² is convex: 0 for a convex h, inf if there is none."""
        return 0.0

    @property
    def largest_step(self) -> float:
        """1/ρ: for shorter steps the prox is single-valued and continuous."""
        return 1 / self.weak_convexity if self.weak_convexity else math.inf

    @property
    def captures(self) -> bool:
        """Whether `prox` leaves the host alone: it neither reads a value back from the device nor branches on one.

        A GPU can then record a whole round as a CUDA graph and replay it; a round with a prox that does not is run step
        by step.
        """
        return True

    @property
    def elementwise(self) -> bool:
        """Whether `prox` also takes a length for every entry: argmin_u h(u) + Σ_j (u_j - x_j)² / (2·step_j).

        That is the proximal step in a diagonal metric, which local updates such as AdamW have.  It is closed where h is
        a sum over entries.  The weakly convex sums say no: their prox needs every length to be below 1/ρ.
        """
        return False

    @property
    def shrinkage(self) -> float | None:
        """λ, if the prox is soft-thresholding at λ·step and nothing else; a kernel does that in passing."""
        return None


@dataclass(frozen=True, eq=False)
class OnParameters(Regularizer):
    """Another regulariser on the chosen entries of the vector, nothing on the rest.

    The inner one sees the chosen entries as a vector of their own, in the order given.
    """

    inner: Regularizer
    chosen: Tensor
    """(q,) int64: positions in the flat vector.  A mask of it, (p,) bool, is replaced by its positions."""
    _copies: dict[torch.device, Tensor] = field(default_factory=dict, init=False, repr=False)
    # The positions on every device that asked: copying them anew for each proximal step would cost more than the step.

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = self.chosen.nonzero().squeeze(-1) if self.chosen.dtype == torch.bool else self.chosen
        if chosen.ndim != 1 or chosen.is_floating_point() or chosen.is_complex():
            raise ConfigError(
                "OnParameters takes a vector of whole numbers, the positions of the entries, or of truth values, one "
                f"for each entry; it got {str(chosen.dtype).removeprefix('torch.')} of shape {tuple(chosen.shape)}."
            )
        if len(chosen) and (int(chosen.min()) < 0 or len(chosen.unique()) < len(chosen)):  # type: ignore[no-untyped-call]
            raise ConfigError(
                "OnParameters takes every position once, counted from 0; some are negative, or twice there."
            )
        object.__setattr__(self, "chosen", chosen.long())

    @classmethod
    def matching(cls, inner: Regularizer, layout: Layout, patterns: list[str]) -> Regularizer:
        """The regulariser, fitted, on the parameters whose names match one of the shell-style patterns."""
        mask = layout.mask(patterns)
        if not mask.any():
            raise ConfigError(f"regularizer.on = {patterns} matches no parameter; there are {', '.join(layout.names)}.")
        return inner.fit(layout) if mask.all() else cls(inner, mask.nonzero().squeeze(-1)).fit(layout)

    def fit(self, layout: Layout) -> OnParameters:
        """Fits the inner one to the chosen tensors; it stays as it is if anything but whole tensors is chosen."""
        if len(self.chosen) and (last := int(self.chosen.max())) >= layout.size:
            raise ConfigError(f"OnParameters has the position {last}, and the vector ends with {layout.size - 1}.")
        mask = torch.zeros(layout.size, dtype=torch.bool)
        mask[self.chosen] = True
        whole = [(name, stretch, shape) for name, stretch, shape in layout.segments() if mask[stretch].all()]
        positions = [torch.arange(stretch.start, stretch.stop) for _, stretch, _ in whole]
        if not positions or not torch.equal(torch.cat(positions), self.chosen.cpu()):
            return self
        names, _, shapes = zip(*whole, strict=True)
        return OnParameters(self.inner.fit(Layout(names, shapes)), self.chosen)

    def value(self, x: Tensor) -> Tensor:
        return self.inner.value(x[..., self._on(x.device)])

    def prox(self, x: Tensor, step: Step) -> Tensor:
        chosen = self._on(x.device)
        if isinstance(step, Tensor) and step.ndim and step.shape[-1] > 1:
            step = step[..., chosen]
        return x.index_copy(-1, chosen, self.inner.prox(x[..., chosen], step))

    def subgradient(self, x: Tensor) -> Tensor:
        chosen = self._on(x.device)
        return torch.zeros_like(x).index_copy(-1, chosen, self.inner.subgradient(x[..., chosen]))

    def bounded_subgradient(self, dim: int) -> float | None:
        return self.inner.bounded_subgradient(len(self.chosen))

    @property
    def weak_convexity(self) -> float:
        return self.inner.weak_convexity

    @property
    def captures(self) -> bool:
        return self.inner.captures

    @property
    def elementwise(self) -> bool:
        return self.inner.elementwise

    def _on(self, device: torch.device) -> Tensor:
        if device not in self._copies:
            self._copies[device] = self.chosen.to(device)
        return self._copies[device]


def soft_threshold(x: Tensor, threshold: Step) -> Tensor:
    """sign(x)·max(|x| - threshold, 0), as x minus its projection onto [-threshold, threshold].

    The subtraction gives exact zeros, and needs two passes instead of four.
    """
    inside = torch.clamp(x, -threshold, threshold)  # type: ignore[arg-type]
    return torch.sub(x, inside, out=inside)


def check_stretches(key: str, stretches: Iterable[slice], size: int) -> None:
    """Refuse stretches that overlap, are empty or leave the vector."""
    end = 0
    for stretch in sorted(stretches, key=lambda s: s.start):
        if not end <= stretch.start < stretch.stop <= size:
            raise ConfigError(
                f"{key} has the entries from {stretch.start} to before {stretch.stop}, which overlap others or do not "
                f"lie within the {size} chosen ones."
            )
        end = stretch.stop


def unless_still(step: Step, x: Tensor, moved: Tensor) -> Tensor:
    """x itself, bit for bit, where the step is nothing; otherwise `moved`."""
    if isinstance(step, Tensor):
        return torch.where(step == 0, x, moved)
    return x if step == 0 else moved
