"""What surrounds the convolutions of all clients: the gradient of a pool, and the first layer's patches.

Shapes as in `conv`: (N, B, H, W, C).  Each program has a stretch of one client's output.
"""

# Triton has no types
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048


def pool_relu_backward(da: Tensor, which: Tensor, height: int, width: int) -> Tensor:
    """The gradient (N, B, height, width, C) of what conv_pool_relu pools, from da (N, B, H/2, W/2, C) of its result."""
    clients, batch, _, _, channels = da.shape
    dy = da.new_empty(clients, batch, height, width, channels)
    size = dy[0].numel()
    grid = (triton.cdiv(size, BLOCK), clients)
    with torch.cuda.device_of(da):
        _pool_backward[grid](da, which, dy, size, batch, height, width, channels, BLOCK)
    return dy


@triton.jit
def _pool_backward(da, which, dy, size, B, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image, h, w, channel = i // (C * W * H), i // (C * W) % H, i // C % W, i % C
    kept = (i < size) & (h < H // 2 * 2) & (w < W // 2 * 2)
    source = ((image * (H // 2) + h // 2) * (W // 2) + w // 2) * C + channel
    source += client * B * (H // 2) * (W // 2) * C
    at = tl.load(which + source, mask=kept, other=4)
    value = tl.load(da + source, mask=kept, other=0.0)
    passed = at == h % 2 * 2 + w % 2
    tl.store(dy + client * size + i, tl.where(passed, value, 0.0).to(dy.dtype.element_ty), mask=i < size)


def patches(inputs: Tensor, dtype: torch.dtype, padding: int = 1) -> Tensor:
    """The 3×3 patches of inputs (N, B, C, H, W), of any strides: (N, B, H, W, 9·C, padded to a multiple of 16).

    Zeros pad the border and the columns, which are tap by tap.  With them a first layer, whose few channels make a
    bad matrix product, is a convolution of one tap.  With `padding` 0 there are only the patches within the image.
    """
    clients, batch, channels, rows, across = inputs.shape
    height, width = rows + 2 * padding - 2, across + 2 * padding - 2
    columns = triton.cdiv(9 * channels, 16) * 16
    out = inputs.new_empty(clients, batch, height, width, columns, dtype=dtype)
    size = out[0].numel()
    with torch.cuda.device_of(inputs):
        _patches[(triton.cdiv(size, BLOCK), clients)](
            *(inputs, out, size, *inputs.stride(), channels, height, width, columns, padding, BLOCK)
        )
    return out


@triton.jit
def _patches(
    x, out, size, stride_n, stride_b, stride_c, stride_h, stride_w,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, PADDING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image, k = i // (K * W * H), i % K
    tap, channel = k // C, k % C
    h = i // (K * W) % H + tap // 3 - PADDING
    w = i // K % W + tap % 3 - PADDING
    inside = (i < size) & (tap < 9) & (h >= 0) & (h < H + 2 - 2 * PADDING) & (w >= 0) & (w < W + 2 - 2 * PADDING)
    place = image * stride_b + channel * stride_c + h * stride_h + w * stride_w
    value = tl.load(x + client * stride_n + place, mask=inside, other=0.0)
    tl.store(out + client * size + i, value.to(out.dtype.element_ty), mask=i < size)
