"""The gradient of all clients' convolutions with respect to their weights; shapes as in `conv`."""

# Triton has no types
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedcef.kernels.conv import Launch, block_of, choose_launch, images, position, shift, tile_of

MULTIPROCESSORS = 132  # of an H200; a constant, because splits decide the order of summation and so the last bits


def conv_weight_gradient(
    x: Tensor,
    dy: Tensor,
    taps: int = 9,
    bias: bool = True,
    out: Tensor | None = None,
    scale: Tensor | None = None,
    partial: bool = False,
    padding: int = 1,
    launch: Launch | None = None,
) -> tuple[Tensor, Tensor | None]:
    """From a convolution's input x (N, B, H, W, Cin) and the gradient dy (N, B, H, W, Cout) of its output: the
    gradients (N, taps, Cin, Cout) of its weights and, with `bias`, (N, Cout) of its bias, float32.

    The pixels are split between programs, whose sums are added in a fixed order: every run gives the same bits.
    `out`: where the weights' gradient goes, each client's part contiguous; with it, the pixels are not split.
    `scale` (N,): what each client's gradient of the weights is multiplied by (only with `out`).
    `partial`: the weights' gradient is left as it is before the last sum, (splits, N, taps, Cin, Cout).
    `padding`: the convolution's; without it, dy is smaller than x.
    """
    clients, batch, height, width, cout = dy.shape
    cin = x.shape[-1]
    launch = launch or choose_launch("weights", cin, cout, taps, x.dtype)
    rows, columns = tile_of(height, width, launch.pixels)
    block_in, block_out = block_of(cin, launch.cin), block_of(cout, launch.cout)
    group = min(launch.taps, taps)
    programs = taps // group * triton.cdiv(cin, block_in) * triton.cdiv(cout, block_out)
    tiles = batch * triton.cdiv(height, rows) * triton.cdiv(width, columns)
    splits = 1 if out is not None else max(1, launch.waves * MULTIPROCESSORS // (programs * clients))
    count = triton.cdiv(tiles, splits)  # tiles of a split
    splits = triton.cdiv(tiles, count)
    dw = x.new_empty(splits, clients, taps, cin, cout, dtype=torch.float32) if out is None else out.unsqueeze(0)
    db = x.new_empty(splits, clients, cout, dtype=torch.float32)
    with torch.cuda.device_of(x):
        _weights[(programs, splits, clients)](
            images(x, rows, columns, block_in),
            images(dy, rows, columns, block_out),
            dw,
            db,
            db if scale is None else scale,
            batch,
            *(dw.stride(0), dw.stride(1), count, height, width, cin, cout, taps, group),
            *(rows, columns, block_in, block_out, bias, scale is not None, padding),
            num_warps=launch.warps,
            num_stages=launch.stages,
        )
    if not partial:
        dw = dw[0] if splits == 1 else dw.sum(0)
    return dw, db.sum(0) if bias else None


@triton.jit
def _weights(
    x, dy, dw, db, scale, B,
    SPLIT_STRIDE: tl.constexpr, CLIENT_STRIDE: tl.constexpr,  # constants, for what they are multiples of
    COUNT: tl.constexpr, H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    TAPS: tl.constexpr, GROUP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_IN: tl.constexpr, BLOCK_OUT: tl.constexpr,
    BIAS: tl.constexpr, SCALE: tl.constexpr, PADDING: tl.constexpr,
):  # fmt: skip
    """The sum over a split of a client's pixels, for GROUP taps and a block of the channels."""
    IN_BLOCKS: tl.constexpr = (CIN + BLOCK_IN - 1) // BLOCK_IN
    OUT_BLOCKS: tl.constexpr = (COUT + BLOCK_OUT - 1) // BLOCK_OUT
    pid, split, client = tl.program_id(0), tl.program_id(1), tl.program_id(2)  # neighbours share pixels
    n = pid % OUT_BLOCKS * BLOCK_OUT
    m = pid // OUT_BLOCKS % IN_BLOCKS * BLOCK_IN
    tap = pid // (OUT_BLOCKS * IN_BLOCKS) * GROUP
    tiles = B * ((H + ROWS - 1) // ROWS) * ((W + COLUMNS - 1) // COLUMNS)
    start = client * tiles + split * COUNT
    end = (client + 1) * tiles
    channels = n + tl.arange(0, BLOCK_OUT)
    if BIAS and pid < OUT_BLOCKS:  # the first tap's programs sum dy as well
        accs, total = _sum_products(
            x, dy, start, end, tap, m, n, COUNT, H, W, TAPS, GROUP, ROWS, COLUMNS, BLOCK_IN, BLOCK_OUT, True, PADDING
        )
        place = (split * tl.num_programs(2) + client) * COUT + channels
        tl.store(db + place, tl.sum(total, 0), mask=channels < COUT)
    else:
        accs, total = _sum_products(
            x, dy, start, end, tap, m, n, COUNT, H, W, TAPS, GROUP, ROWS, COLUMNS, BLOCK_IN, BLOCK_OUT, False, PADDING
        )
    base = dw + split.to(tl.int64) * SPLIT_STRIDE + client.to(tl.int64) * CLIENT_STRIDE
    inputs = m + tl.arange(0, BLOCK_IN)
    inside = (inputs < CIN)[:, None] & (channels < COUT)[None, :]
    for t in tl.static_range(GROUP):
        acc = accs[t].T
        if SCALE:
            acc *= tl.load(scale + client)
        tl.store(base + ((tap + t) * CIN + inputs[:, None]) * COUT + channels[None, :], acc, mask=inside)


@triton.jit
def _sum_products(
    x, dy, start, end, tap, m, n,
    COUNT: tl.constexpr, H: tl.constexpr, W: tl.constexpr, TAPS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, BLOCK_IN: tl.constexpr, BLOCK_OUT: tl.constexpr, BIAS: tl.constexpr,
    PADDING: tl.constexpr,
):  # fmt: skip
    """For each of GROUP taps the sum over tiles of dyᵀ·x shifted, (BLOCK_OUT, BLOCK_IN), and the sum of dy's tiles."""
    accs = ()
    for _ in tl.static_range(GROUP):
        accs += (tl.zeros((BLOCK_OUT, BLOCK_IN), tl.float32),)  # type: ignore[assignment]
    total = tl.zeros((ROWS * COLUMNS, BLOCK_OUT), tl.float32)
    for i in range(COUNT):
        image, h, v = position(start + i, H, W, ROWS, COLUMNS)
        image = tl.where(start + i < end, image, -1)  # no image: TMA gives zeros
        d = dy.load([image, h, v, n]).reshape(ROWS * COLUMNS, BLOCK_OUT)  # one tile in registers for all taps
        if BIAS:
            total += d.to(tl.float32)
        new = ()
        for t in tl.static_range(GROUP):
            dh, dv = shift(tap + t, TAPS, PADDING)
            pixels = x.load([image, h + dh, v + dv, m]).reshape(ROWS * COLUMNS, BLOCK_IN)
            new += (tl.dot(d.T, pixels, accs[t], input_precision="ieee"),)  # type: ignore[assignment]
        accs = new
    return accs, total
