"""Stretches of equal length of a vector: what shares a scale, and sums over it.

The last stretch may be shorter; it is filled up with zeros.  A length of 0 stands for the whole vector.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

Block = Annotated[int, Field(ge=0)]


def block_length(dim: int, block: int) -> int:
    """The length of the stretches of a vector of length `dim`."""
    return min(block, dim) if block else dim


def split(x: Tensor, block: int) -> Tensor:
    """(..., p) -> (..., blocks, block)."""
    length = block_length(x.shape[-1], block)
    filled = pad(x, (0, missing)) if (missing := -x.shape[-1] % length) else x
    return filled.reshape(*x.shape[:-1], filled.shape[-1] // length, length)


def join(blocks: Tensor, dim: int) -> Tensor:
    """(..., blocks, block) -> (..., p): `split` undone."""
    return blocks.flatten(-2)[..., :dim]


def present(x: Tensor, block: int) -> Tensor | None:
    """Which entries of the blocks of x are x's and not filling, (blocks, block) bool; None if all are."""
    dim = x.shape[-1]
    length = block_length(dim, block)
    if dim % length == 0:
        return None
    return (torch.arange(dim + -dim % length, device=x.device) < dim).reshape(-1, length)


def present_count(blocks: Tensor, dim: int) -> Tensor:
    """How many entries of each block of a vector of length `dim` are not filling: (blocks, 1)."""
    count, length = blocks.shape[-2:]
    return (dim - torch.arange(0, count * length, length, device=blocks.device)).clamp(max=length).unsqueeze(-1)


def largest_size(x: Tensor) -> Tensor:
    """max |x| over the last axis, which stays with length 1."""
    return x.abs().amax(-1, keepdim=True)


def divided(x: Tensor, size: Tensor) -> Tensor:
    """x / size, and 0 where the size is 0: to compute with numbers of order 1, whose squares stay in range."""
    return x / torch.where(size == 0, 1, size)


def total(x: Tensor) -> Tensor:
    """The sum over the last axis, which stays with length 1; in float64, where the order of summation hardly shows."""
    return x.sum(-1, keepdim=True, dtype=torch.float64)


def norm(x: Tensor) -> Tensor:
    """|x|₂ over the last axis, which stays with length 1; float64, and right where squares are out of range."""
    size = largest_size(x)
    return size * total(divided(x, size).square()).sqrt()


def best_multiple(x: Tensor, levels: Tensor) -> Tensor:
    """The c with the smallest |x - c·levels| in each stretch, (..., 1) float64; 0 where all levels are 0.

    Whatever c a rule prescribes for these levels, this one is no worse: it is the projection of x onto them.
    """
    return divided(total(x * levels), total(levels.square()))


def as_scales(scales: Tensor, size: Tensor) -> Tensor:
    """Scales (..., blocks, 1) for numbers that were divided by `size`, as they are sent: float32 (..., blocks)."""
    return (scales * size).to(torch.float32).squeeze(-1)
