"""Weights between their places in clients' flat vectors, float32 and in torch's order, and what the kernels take.

For a convolution torch's order is (O, I, 3, 3), the kernels' taps·I rows of O: a tile is read along one order's last
axis and written along the other's, so that both are in whole lines.
"""

# Triton has no types
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_OUT, BLOCK_ROW, BLOCK = 32, 64, 4096


def taps_first(weight: Tensor, dtype: torch.dtype, rows: int) -> Tensor:
    """weight (N, O, I, 3, 3), each client's contiguous, as (N, rows, O), row tap·I + i; zeros follow up to `rows`."""
    clients, outputs, inputs = weight.shape[:3]
    make = torch.empty if rows == 9 * inputs else torch.zeros
    w = make(clients, rows, outputs, dtype=dtype, device=weight.device)
    grid = (triton.cdiv(9 * inputs, BLOCK_ROW), triton.cdiv(outputs, BLOCK_OUT), clients)
    with torch.cuda.device_of(weight):
        _taps_first[grid](weight, w, weight.stride(0), rows, inputs, outputs, BLOCK_ROW, BLOCK_OUT)
    return w


@triton.jit
def _taps_first(
    weight, w, STRIDE: tl.constexpr, ROWS: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    BLOCK_ROW: tl.constexpr, BLOCK_OUT: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    k = tl.program_id(0) * BLOCK_ROW + tl.arange(0, BLOCK_ROW)  # i·9 + tap
    o = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    inside = (o < COUT)[:, None] & (k < 9 * CIN)[None, :]
    tile = tl.load(weight + client * STRIDE + o[:, None] * (9 * CIN) + k[None, :], mask=inside)
    place = w + client * ROWS * COUT + (k % 9 * CIN + k // 9)[:, None] * COUT + o[None, :]
    tl.store(place, tile.T.to(w.dtype.element_ty), mask=inside.T)


def collect(parts: Tensor, out: Tensor, scale: Tensor | None) -> None:
    """Into out (N, O, I, 3, 3), each client's contiguous: the sum of parts (S, N, rows, O) over S, times scale (N,)."""
    splits, clients, rows, outputs = parts.shape
    inputs = out.shape[2]
    grid = (triton.cdiv(9 * inputs, BLOCK_ROW), triton.cdiv(outputs, BLOCK_OUT), clients)
    with torch.cuda.device_of(out):
        _collect[grid](
            *(parts, out, out if scale is None else scale, out.stride(0)),
            *(splits, rows, inputs, outputs, BLOCK_ROW, BLOCK_OUT, scale is not None),
        )


@triton.jit
def _collect(
    parts, out, scale,
    STRIDE: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    BLOCK_ROW: tl.constexpr, BLOCK_OUT: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    k = tl.program_id(0) * BLOCK_ROW + tl.arange(0, BLOCK_ROW)
    o = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    inside = (k < 9 * CIN)[:, None] & (o < COUT)[None, :]
    place = parts + client * ROWS * COUT + (k % 9 * CIN + k // 9)[:, None] * COUT + o[None, :]
    total = tl.zeros((BLOCK_ROW, BLOCK_OUT), tl.float32)
    for _ in range(SPLITS):  # in a fixed order: every run gives the same bits
        total += tl.load(place, mask=inside, other=0.0)
        place += tl.num_programs(2).to(tl.int64) * ROWS * COUT
    if SCALE:
        total *= tl.load(scale + client)
    tl.store(out + client * STRIDE + o[:, None] * (9 * CIN) + k[None, :], total.T, mask=inside.T)


def cast(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """weight (N, ...), each client's contiguous, in another type and contiguous.

    torch does this slowly: it sees no vectors, because clients lie an odd distance apart.
    """
    w = torch.empty(weight.shape, dtype=dtype, device=weight.device)
    size = w[0].numel()
    with torch.cuda.device_of(weight):
        _cast[(triton.cdiv(size, BLOCK), len(w))](weight, w, weight.stride(0), size, BLOCK)
    return w


@triton.jit
def _cast(weight, w, STRIDE: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(weight + client * STRIDE + i, mask=i < SIZE)
    tl.store(w + client * SIZE + i, value.to(w.dtype.element_ty), mask=i < SIZE)
