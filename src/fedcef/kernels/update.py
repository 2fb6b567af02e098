"""The local step of all clients in one pass over memory."""

# Triton has no types
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def corrected_step(
    x_hat: Tensor, g_sum: Tensor, g: Tensor, correction: Tensor, local_lr: float | Tensor, threshold: float | Tensor
) -> Tensor:
    """In place g_sum += g and x_hat -= local_lr·(g + correction); returns x_hat soft-thresholded, a new tensor.

    All are contiguous (..., p) of one type, float32 or float64; `correction` may be (p,).  `local_lr` and
    `threshold` are numbers or scalars on the device, which are read there.
    """
    x = torch.empty_like(x_hat)
    rate, by = _argument(x, local_lr), _argument(x, threshold)
    period = correction.numel()
    with torch.cuda.device_of(x):
        _corrected_step[(triton.cdiv(x.numel(), BLOCK),)](
            *(x_hat, g_sum, g, correction, x, rate, by, x.numel(), period, period < x.numel()),
            *(isinstance(rate, Tensor), isinstance(by, Tensor), BLOCK),
            num_warps=8,
        )
    return x


def _argument(x: Tensor, value: float | Tensor) -> float | Tensor:
    """As the kernel takes it: Triton passes numbers in single precision, so for float64 they go through memory."""
    return value if isinstance(value, Tensor) or x.dtype == torch.float32 else x.new_full((), value)


@triton.jit
def _corrected_step(
    x_hat, g_sum, g, correction, x, rate, threshold, SIZE: tl.constexpr, PERIOD: tl.constexpr, REPEAT: tl.constexpr,
    RATE_ON_DEVICE: tl.constexpr, THRESHOLD_ON_DEVICE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    i = start + lane
    inside = i < SIZE  # a constant, so that the compiler sees that four neighbours are in or out together
    if RATE_ON_DEVICE:
        rate = tl.load(rate).to(x.dtype.element_ty)
    if THRESHOLD_ON_DEVICE:
        threshold = tl.load(threshold).to(x.dtype.element_ty)
    gradient = tl.load(g + i, mask=inside)
    # 32-bit remainders: the block's start is reduced first
    c = tl.load(correction + (((start % PERIOD).to(tl.int32) + lane) % PERIOD if REPEAT else i), mask=inside)
    total = tl.load(g_sum + i, mask=inside) + gradient
    new = tl.load(x_hat + i, mask=inside) - rate * (gradient + c)
    tl.store(g_sum + i, total, mask=inside)
    tl.store(x_hat + i, new, mask=inside)
    projection = tl.minimum(tl.maximum(new, -threshold), threshold)  # onto [-threshold, threshold]
    tl.store(x + i, new - projection, mask=inside)  # exact zeros
