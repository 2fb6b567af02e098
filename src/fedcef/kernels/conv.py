"""3×3 convolutions of all clients at once, and what goes with them; each client has its own weights.

Images are (N, B, H, W, C): clients, batch, rows, columns, channels, contiguous.  A convolution is a matrix product
for every tap (of 9, or 1 for a plain product) between the weights and a tile of pixels that TMA fetches shifted by
that tap; TMA fills what lies outside of the image with zeros, so there are no masks.  The product is taken
transposed, Cout × pixels: the wide tile of pixels is then wgmma's second operand, its fastest shape, and stays in
shared memory as TMA put it.  TMA wants rows of 16 bytes: numbers of channels are multiples of 8 (float32: 4).
"""

# Triton has no types
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


@dataclass(frozen=True)
class Config:
    """How a kernel is launched.

    pixels: of a tile, at most; cin, cout: channels of a block, at most; taps: done by one program; waves: programs
    of the weight gradient per multiprocessor, which its pixels are split to reach.
    """

    pixels: int
    cin: int
    cout: int
    warps: int
    stages: int
    taps: int = 1
    waves: int = 2


MULTIPROCESSORS = 132  # of an H200; a constant, because splits decide the order of summation and so the last bits


def config(kind: str, cin: int, cout: int, taps: int = 9) -> Config:
    """The launch of a "conv" or a "weights" (its weight gradient) with these sizes."""
    if kind == "conv":
        if cout > 64:
            return Config(pixels=128, cin=64, cout=128, warps=4, stages=3)
        return Config(pixels=256, cin=64, cout=64, warps=4, stages=2)
    if taps == 1:
        return Config(pixels=64, cin=128, cout=128, warps=8, stages=3)
    if cout > 64:
        return Config(pixels=64, cin=64, cout=128, warps=8, stages=3, taps=3)
    return Config(pixels=64, cin=64, cout=64, warps=4, stages=3, taps=3)


def conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    relu: bool = False,
    mask: Tensor | None = None,
    transposed: bool = False,
    cfg: Config | None = None,
) -> Tensor:
    """x (N, B, H, W, Cin) with w (N, taps, Cin, Cout): (N, B, H, W, Cout), of x's type, summed in float32.

    bias (N, Cout), of any type, is added; then `relu` cuts what is negative, or `mask`, shaped as the result, what
    lies where it is not positive.  `transposed`: the gradient with respect to the input of the convolution whose
    weights are w, from that of its output, x; so x has w's last number of channels, the result w's second last.
    """
    clients, batch, height, width, cin = x.shape
    taps, cout = w.shape[1], w.shape[2 if transposed else 3]
    cfg = cfg or config("conv", cin, cout, taps)
    rows, columns = _tile(height, width, cfg.pixels)
    block_in, block_out = _block(cin, cfg.cin), _block(cout, cfg.cout)
    y = x.new_empty(clients, batch, height, width, cout)
    tiles = clients * batch * triton.cdiv(height, rows) * triton.cdiv(width, columns)
    weights = w.flatten(0, 1)
    _conv[(tiles * triton.cdiv(cout, block_out),)](
        _images(x, rows, columns, block_in),
        TensorDescriptor.from_tensor(weights, [1, block_out, block_in] if transposed else [1, block_in, block_out]),
        y if bias is None else bias,
        _images(y if mask is None else mask, rows, columns, block_out),
        _images(y, rows, columns, block_out),
        batch,
        0 if bias is None else bias.stride(0),
        *(height, width, cin, cout, taps, rows, columns, block_in, block_out),
        *(bias is not None, relu, mask is not None, transposed),
        num_warps=cfg.warps,
        num_stages=cfg.stages,
    )
    return y


@triton.jit
def _conv(
    x, w, bias, mask, y, B, bias_stride,
    H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr, TAPS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_IN: tl.constexpr, BLOCK_OUT: tl.constexpr,
    BIAS: tl.constexpr, RELU: tl.constexpr, MASK: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """One tile of pixels, one block of output channels."""
    BLOCKS: tl.constexpr = (COUT + BLOCK_OUT - 1) // BLOCK_OUT
    STEPS: tl.constexpr = (CIN + BLOCK_IN - 1) // BLOCK_IN
    pid = tl.program_id(0)  # neighbours share pixels, then weights
    n = pid % BLOCKS * BLOCK_OUT
    image, h, v = _position(pid // BLOCKS, H, W, ROWS, COLUMNS)
    client = image // B
    acc = tl.zeros((BLOCK_OUT, ROWS * COLUMNS), tl.float32)
    for i in range(TAPS * STEPS):  # one loop over taps and channels: one pipeline
        tap = i // STEPS
        k = i % STEPS * BLOCK_IN
        dh, dv = _shift(tap, TAPS)
        pixels = x.load([image, h + dh, v + dv, k]).reshape(ROWS * COLUMNS, BLOCK_IN)
        if TRANSPOSED:
            weights = w.load([client * TAPS + TAPS - 1 - tap, n, k]).reshape(BLOCK_OUT, BLOCK_IN)
        else:
            weights = w.load([client * TAPS + tap, k, n]).reshape(BLOCK_IN, BLOCK_OUT).T
        acc = tl.dot(weights, pixels.T, acc, input_precision="ieee")
    if BIAS:
        channels = n + tl.arange(0, BLOCK_OUT)
        place = bias + client.to(tl.int64) * bias_stride + channels
        acc += tl.load(place, mask=channels < COUT, other=0.0).to(tl.float32)[:, None]
    if RELU:
        acc = tl.where(acc < 0, 0.0, acc)  # keeps NaN, as torch does
    out = acc.to(y.dtype).T.reshape(1, ROWS, COLUMNS, BLOCK_OUT)
    if MASK:
        out = tl.where(mask.load([image, h, v, n]) > 0, out, 0.0).to(y.dtype)
    y.store([image, h, v, n], out)


def conv_weight_gradient(
    x: Tensor,
    dy: Tensor,
    taps: int = 9,
    bias: bool = True,
    out: Tensor | None = None,
    scale: Tensor | None = None,
    cfg: Config | None = None,
) -> tuple[Tensor, Tensor | None]:
    """From a convolution's input x (N, B, H, W, Cin) and the gradient dy (N, B, H, W, Cout) of its output: the
    gradients (N, taps, Cin, Cout) of its weights and, with `bias`, (N, Cout) of its bias, float32.

    The pixels are split between programs, whose sums are added in a fixed order: every run gives the same bits.
    `out`: where the weights' gradient goes, each client's part contiguous; with it, the pixels are not split.
    `scale` (N,): what each client's gradient of the weights is multiplied by (only with `out`).
    """
    clients, batch, height, width, cin = x.shape
    cout = dy.shape[-1]
    cfg = cfg or config("weights", cin, cout, taps)
    rows, columns = _tile(height, width, cfg.pixels)
    block_in, block_out = _block(cin, cfg.cin), _block(cout, cfg.cout)
    group = min(cfg.taps, taps)
    programs = taps // group * triton.cdiv(cin, block_in) * triton.cdiv(cout, block_out)
    tiles = batch * triton.cdiv(height, rows) * triton.cdiv(width, columns)
    splits = 1 if out is not None else max(1, cfg.waves * MULTIPROCESSORS // (programs * clients))
    count = triton.cdiv(tiles, splits)  # tiles of a split
    splits = triton.cdiv(tiles, count)
    dw = x.new_empty(splits, clients, taps, cin, cout, dtype=torch.float32) if out is None else out.unsqueeze(0)
    db = x.new_empty(splits, clients, cout, dtype=torch.float32)
    _weights[(programs, splits, clients)](
        _images(x, rows, columns, block_in),
        _images(dy, rows, columns, block_out),
        dw,
        db,
        db if scale is None else scale,
        batch,
        *(dw.stride(0), dw.stride(1), count, height, width, cin, cout, taps, group),
        *(rows, columns, block_in, block_out, bias, scale is not None),
        num_warps=cfg.warps,
        num_stages=cfg.stages,
    )
    return (dw[0] if splits == 1 else dw.sum(0)), (db.sum(0) if bias else None)


@triton.jit
def _weights(
    x, dy, dw, db, scale, B,
    SPLIT_STRIDE: tl.constexpr, CLIENT_STRIDE: tl.constexpr,  # constants, for what they are multiples of
    COUNT: tl.constexpr, H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    TAPS: tl.constexpr, GROUP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_IN: tl.constexpr, BLOCK_OUT: tl.constexpr,
    BIAS: tl.constexpr, SCALE: tl.constexpr,
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
            x, dy, start, end, tap, m, n, COUNT, H, W, TAPS, GROUP, ROWS, COLUMNS, BLOCK_IN, BLOCK_OUT, True
        )
        place = (split * tl.num_programs(2) + client) * COUT + channels
        tl.store(db + place, tl.sum(total, 0), mask=channels < COUT)
    else:
        accs, total = _sum_products(
            x, dy, start, end, tap, m, n, COUNT, H, W, TAPS, GROUP, ROWS, COLUMNS, BLOCK_IN, BLOCK_OUT, False
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
):  # fmt: skip
    """For each of GROUP taps the sum over tiles of dyᵀ·x shifted, (BLOCK_OUT, BLOCK_IN), and the sum of dy's tiles."""
    accs: Any = ()
    for _ in tl.static_range(GROUP):
        accs += (tl.zeros((BLOCK_OUT, BLOCK_IN), tl.float32),)
    total = tl.zeros((ROWS * COLUMNS, BLOCK_OUT), tl.float32)
    for i in range(COUNT):
        image, h, v = _position(start + i, H, W, ROWS, COLUMNS)
        image = tl.where(start + i < end, image, -1)  # no image: TMA gives zeros
        d = dy.load([image, h, v, n]).reshape(ROWS * COLUMNS, BLOCK_OUT)  # one tile in registers for all taps
        if BIAS:
            total += d.to(tl.float32)
        new: Any = ()
        for t in tl.static_range(GROUP):
            dh, dv = _shift(tap + t, TAPS)
            pixels = x.load([image, h + dh, v + dv, m]).reshape(ROWS * COLUMNS, BLOCK_IN)
            new += (tl.dot(d.T, pixels, accs[t], input_precision="ieee"),)
        accs = new
    return accs, total


@triton.jit
def _position(tile, H: tl.constexpr, W: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The image (counted over all clients), first row and first column of a tile of pixels."""
    DOWN: tl.constexpr = (H + ROWS - 1) // ROWS
    ACROSS: tl.constexpr = (W + COLUMNS - 1) // COLUMNS
    return tile // (DOWN * ACROSS), tile // ACROSS % DOWN * ROWS, tile % ACROSS * COLUMNS


@triton.jit
def _shift(tap, TAPS: tl.constexpr):
    """Rows and columns from an output pixel to the input pixel of a tap."""
    place = tap if TAPS == 9 else tap + 4  # a single tap is the middle one
    return place // 3 - 1, place % 3 - 1


def _images(x: Tensor, rows: int, columns: int, channels: int) -> TensorDescriptor:
    """x (N, B, H, W, C) for TMA, in tiles of rows × columns pixels of one image by a block of channels."""
    return TensorDescriptor.from_tensor(x.flatten(0, 1), [1, rows, columns, channels])


def _tile(height: int, width: int, pixels: int) -> tuple[int, int]:
    """Rows and columns, powers of two, of a tile of at most so many pixels, and at least 16 for tl.dot."""
    columns = min(triton.next_power_of_2(width), pixels)
    return max(min(triton.next_power_of_2(height), pixels // columns), 16 // columns, 1), columns


def _block(channels: int, most: int) -> int:
    return max(16, min(int(triton.next_power_of_2(channels)), most))
