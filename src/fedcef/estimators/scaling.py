"""Features centred and scaled by all clients' samples, without showing a sample to anyone.

Each client sends its weighted sums and learns the means; then its sums of squares around them, and learns the scales.
A coefficient of a scaled feature is penalised by λ/scale, so that the minimum is that of the unscaled problem: scaling
only makes it quick to find.  Means are taken out only where there is an intercept to put them into.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.estimators.linear import Table
from fedcef.wire import Dense, frame_nbytes


@dataclass(frozen=True, eq=False)
class Scaling:
    """Means and scales of the features, and the bytes that it took to agree on them."""

    mean: Tensor  # (d,)
    scale: Tensor  # (d,)
    up_bytes: int
    down_bytes: int

    @classmethod
    def of(cls, tables: list[Table], centre: bool) -> Scaling:
        """Agree on them by what all clients send; without `centre` means stay 0."""
        first = tables[0].inputs
        mean = first.new_zeros(first.shape[1])
        up: list[Tensor] = []
        down: list[Tensor] = []
        if centre:
            sums = [torch.cat([t.weights.sum()[None], t.weights @ t.inputs]) for t in tables]
            total = torch.stack(sums).sum(0)
            mean = total[1:] / total[0]
            up, down = [*up, *sums], [*down, mean]
        squares = [t.weights @ (t.inputs - mean).square() for t in tables]
        largest = torch.stack([t.inputs.abs().amax(0) for t in tables]).amax(0)
        scale = scale_of(torch.stack(squares).sum(0), largest)
        return cls(mean, scale, sent([*up, *squares]), len(tables) * sent([*down, scale]))

    def apply(self, tables: list[Table]) -> list[Table]:
        """The clients' tables with scaled features."""
        return [Table((t.inputs - self.mean) / self.scale, t.targets, t.weights) for t in tables]

    def undo(self, coefficients: Tensor, intercepts: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients (C, d) and intercepts (C,) for the features as they were."""
        coefficients = coefficients / self.scale
        return coefficients, intercepts - coefficients @ self.mean


def scale_of(squares: Tensor, largest: Tensor) -> Tensor:
    """Scales from sums of squares; a column that is constant, for its largest entries, says nothing and becomes 0."""
    scale = squares.sqrt()
    return torch.where(scale > 1e-14 * largest, scale, torch.inf)


def sent(vectors: list[Tensor]) -> int:
    """The bytes of these vectors, each as a message of its own."""
    return sum(int(frame_nbytes({"numbers": Dense(vector)})) for vector in vectors)
