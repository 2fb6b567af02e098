"""Numbers as multiples of one scale per block: which level each is rounded to, and which scale is best.

Rounding to the nearest level and the scale that is best for the levels taken (least squares) are done in turns, as in
Lloyd's algorithm; no turn makes the error larger.  Where it begins matters: with the largest level at the largest
number if there are many levels, at the mean magnitude or twice that if there are few.  Computed with x/max|x|, so that
neither 1e30 nor the smallest numbers leave the range on the way.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from fedcef.compressors.blocks import (
    as_scales,
    best_multiple,
    divided,
    join,
    largest_size,
    present,
    present_count,
    split,
    total,
)
from fedcef.wire import TABLES, Levels


def fitted(x: Tensor, table: str, block: int, rounds: int, means: float | None = None) -> Levels:
    """x, (..., k), rounded to levels of the named table, whose largest is 1.

    It begins at so many times the mean magnitude, or at the largest number.
    """
    blocks, filled = split(x, block), present(x, block)
    size = largest_size(blocks)
    unit = divided(blocks, size)
    if means is None:
        scale = torch.ones_like(size)
    else:
        scale = (means * total(unit.abs()) / present_count(blocks, x.shape[-1])).to(x.dtype)
    for _ in range(rounds):
        codes = nearest(divided(unit, scale), table)
        scale = best_multiple(unit, levels_at(codes, table, filled)).to(x.dtype)
    return Levels(join(codes, x.shape[-1]), as_scales(scale, size), table, block)


def nearest(x: Tensor, table: str) -> Tensor:
    """The code of the level nearest to each number, the upper one of two; uint8.  A NaN gets some code."""
    levels = TABLES[table].levels
    if table.startswith("uniform"):
        half = len(levels) // 2
        return index_codes((x * half).round(), half)
    codes = torch.zeros_like(x, dtype=torch.uint8)
    for low, high in pairwise(levels):
        codes += x >= (low + high) / 2
    return codes


def index_codes(steps: Tensor, half: int) -> Tensor:
    """The codes of whole numbers of steps, -half to half, of a uniform or ternary table; what is beyond is cut off."""
    return (steps.clamp(-half, half) + half).to(torch.uint8).clamp(max=2 * half)  # a NaN becomes any byte


def levels_at(codes: Tensor, table: str, filled: Tensor | None = None) -> Tensor:
    """The levels that the codes stand for, 0 at the filling of the last block; float32."""
    levels = TABLES[table].tensor(codes.device)[codes.int()]
    return levels if filled is None else levels * filled
