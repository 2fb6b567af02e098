"""Entries above a threshold that follows the vector's size.

|x_j| >= τ with τ = factor·|x|₂/√p.  What is dropped has less than pτ² = factor²|x|² of the energy.  The largest entry
is kept even if it is below, so that the error is at most (1 - 1/p)|x|² for any factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcef.compressors.blocks import divided, largest_size, total
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.value_coders import cast_to, coding_error
from fedcef.core.rng import Key
from fedcef.wire import Nonzeros, Payload


@dataclass(frozen=True, eq=False, kw_only=True)
class Threshold(Compressor):
    """Entries above a multiple of the vector's root mean square; their number varies."""

    factor: Annotated[float, Field(gt=0)] = 2.0
    """The threshold is this times |x|₂/√p."""
    values: Literal["native", "float32", "float16", "bfloat16"] = "native"
    """How kept values travel; "native" is the type in which the algorithm computes."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """The entries that reach the threshold, or all of them if that is shorter."""
        size = largest_size(x)
        ratio = divided(x, size).abs()
        threshold = self.factor * (total(ratio.square()) / x.shape[-1]).sqrt()
        dropped = ratio < threshold.to(x.dtype).clamp(max=1)  # nothing, if there is a NaN: it is to be seen
        return Nonzeros(cast_to(torch.where(dropped, 0, x), self.values))

    def contraction(self, dim: int) -> float:
        """min(factor², 1 - 1/p), and what rounding the values adds."""
        kept = 1 - min(self.factor**2, 1 - 1 / dim)
        return 1 - (1 - coding_error(self.values, 1, 0)) * kept
