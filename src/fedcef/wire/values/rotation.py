"""The randomised block Hadamard transform: y = H(D x)/√block, block by block, with random signs D from a key.

It spreads every entry over its block, so that the entries of y look normally distributed whatever x is.  H is applied
by butterflies of float32 sums and differences in a fixed order, so every device gets the same bits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.wire.errors import WireError

MAX_BLOCK = 2**16


def rotate(x: Tensor, key: Tensor, block: int) -> Tensor:
    """(..., dim) -> (..., ⌈dim / block⌉ · block) float32; `key` has the leading axes of x, or none."""
    signed = torch.where(_negative(key, x.shape[-1]), -x.float(), x.float())
    padding = padded_size(x.shape[-1], block) - x.shape[-1]
    return _hadamard(torch.nn.functional.pad(signed, (0, padding)), block)


def unrotate(y: Tensor, key: Tensor, dim: int, block: int) -> Tensor:
    """(..., ⌈dim / block⌉ · block) -> (..., dim) float32: what `rotate` made y of, up to rounding."""
    x = _hadamard(y.float(), block)[..., :dim]
    return torch.where(_negative(key, dim), -x, x)


def padded_size(dim: int, block: int) -> int:
    """⌈dim / block⌉ · block."""
    require_block(block)
    return -(-dim // block) * block


def require_block(block: int) -> None:
    if not (1 <= block <= MAX_BLOCK and block & (block - 1) == 0):
        raise WireError(f"A rotation in blocks of {block} is not possible; blocks are powers of two up to {MAX_BLOCK}.")


def _negative(key: Tensor, dim: int) -> Tensor:
    """Which entries change their sign, (..., dim)."""
    return rng.bits(key, dim) < 0


def _hadamard(x: Tensor, block: int) -> Tensor:
    """H x/√block of each block of (..., m · block); entry i of H x is the sum of (-1)^popcount(i & j) x_j over j."""
    shape = x.shape
    half = 1
    while half < block:
        a, b = x.reshape(*shape[:-1], -1, 2, half).unbind(-2)
        x = torch.stack([a + b, a - b], dim=-2)
        half *= 2
    return x.reshape(shape) * (1 / math.sqrt(block))
