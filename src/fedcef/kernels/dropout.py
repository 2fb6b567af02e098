"""Dropout of all clients' activations in place, with the masks of `core.masks`: hash and product in one pass."""

# Triton has no types
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedcef.core import rng
from fedcef.core.masks import Chance

BLOCK = 2048


@dataclass(frozen=True)
class Drop:
    """A dropout layer."""

    chance: Chance
    channels: bool  # whether it drops whole channels of an image, not single entries

    def words(self, a: Tensor) -> int:
        """How many places of each client's sequence of bits a mask for a (N, B, H, W, C) or (N, B, C) uses up."""
        return self.chance.words(a.shape[1] * a.shape[-1] if self.channels else prod(a.shape[1:]))

    def apply(self, a: Tensor, keys: Tensor, start: int) -> None:
        """Drop entries of a, (N, B, H, W, C) or (N, B, C), contiguous, with masks from place `start` of the keys (N,).

        A mask numbers its entries as torch does, (B, C, H, W), so that every oracle drops the same.
        """
        if self.chance.always:  # p was next to nothing
            return
        size, pixels = a[0].numel(), prod(a.shape[2:-1])
        with torch.cuda.device_of(a):
            _drop[(triton.cdiv(size, BLOCK), len(a))](
                *(a, keys.contiguous(), self.chance.scale, size, start, self.chance.kept - 2**15),
                *(pixels, a.shape[-1], self.channels, rng._GOLDEN, rng._MIX_1, rng._MIX_2, BLOCK),
            )


@triton.jit
def _drop(
    a, keys, scale, size, start, LIMIT: tl.constexpr, PIXELS: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr,
    GOLDEN: tl.constexpr, MIX_1: tl.constexpr, MIX_2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    entry = i // (C * PIXELS) * C + i % C  # which channel of all samples
    if not CHANNELS:
        entry = entry * PIXELS + i // C % PIXELS
    word = (start + entry // 4 + 1).to(tl.int64)
    z = tl.load(keys + client) + word * GOLDEN
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * MIX_1
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * MIX_2
    z = z ^ ((z >> 31) & 0x1FFFFFFFF)
    kept = ((z >> (entry % 4 * 16)) & 0xFFFF).to(tl.int16) < LIMIT
    place = a + client * size + i
    value = tl.load(place, mask=i < size).to(tl.float32)
    tl.store(place, (value * tl.where(kept, scale, 0.0)).to(a.dtype.element_ty), mask=i < size)
