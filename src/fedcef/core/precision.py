"""In which arithmetic gradients are computed.

State and updates are float32, or float64 for the precision of that name.  Gradients can be cheaper on a GPU: `tf32`
lets its matrix units round the factors of every product to 10 bits, `bfloat16` runs the model in bfloat16 (7 bits) with
sums in float32, by torch's autocast.  `bfloat16_weights` gives the model parameters in bfloat16: those of the float32
vector, which is what steps are added to, rounded once a gradient; so are its activations, of which autocast keeps some
in float32.  It takes half the memory and is the quickest for transformers.  `float32` means float32: torch's own
default would let convolutions use tf32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Precision = Literal["float32", "float64", "tf32", "bfloat16", "bfloat16_weights"]


def state_dtype(precision: Precision) -> torch.dtype:
    """The type of parameters and of everything that is added up."""
    return torch.float64 if precision == "float64" else torch.float32


@contextmanager
def matrix_units(precision: Precision) -> Iterator[None]:
    """Whether products of float32 tensors may be computed in tf32 on a GPU; nothing else has such units."""
    allowed = precision in ("tf32", "bfloat16", "bfloat16_weights")
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
        torch.backends.cudnn.deterministic = before[2]
