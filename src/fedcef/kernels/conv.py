"""3×3 convolutions of all clients at once, and what goes with them; each client has its own weights.

Images are (N, B, H, W, C): clients, batch, rows, columns, channels, contiguous.  A convolution is a matrix product
for every tap (of 9, or 1 for a plain product) between the weights and a tile of pixels that TMA fetches shifted by
that tap; TMA fills what lies outside of the image with zeros, so there are no masks.  The product is taken
transposed, Cout × pixels: the wide tile of pixels is then wgmma's second operand, its fastest shape, and stays in
shared memory as TMA put it.  TMA wants rows of 16 bytes: channels come in multiples of 8, for a pool of 16.
"""

# Triton has no types
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def, no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


@dataclass(frozen=True)
class Launch:
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


def choose_launch(kind: str, cin: int, cout: int, taps: int = 9, dtype: torch.dtype = torch.bfloat16) -> Launch:
    """The launch of a "conv" or a "weights" (its weight gradient) with these sizes: what was fastest on an H200."""
    if dtype == torch.float32:  # exact products, which tensor cores do not have: only for tests
        return Launch(pixels=64, cin=16, cout=32, warps=4, stages=2)
    if kind == "conv":
        if taps == 1 and cin > 64:  # a linear layer: few pixels, and weights that are read once
            wide = cout > cin
            return Launch(
                pixels=64, cin=64 if wide else 128, cout=128 if wide else 64, warps=4, stages=3 if wide else 5
            )
        if cout > 64:
            return Launch(pixels=128, cin=64, cout=128, warps=4, stages=3)
        return Launch(pixels=128, cin=64, cout=64, warps=4, stages=3 if cin > 64 else 2)
    if taps == 1 and cin <= 64:  # patches: bound by memory
        return Launch(pixels=64, cin=64, cout=64, warps=4, stages=4, waves=4)
    if taps == 1:
        return Launch(pixels=64, cin=64, cout=128, warps=4, stages=1)
    if cout > 64:
        return Launch(pixels=64, cin=64, cout=128, warps=8, stages=3, taps=3, waves=1)
    return Launch(pixels=64, cin=64, cout=64, warps=4, stages=3, taps=3)


def conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    relu: bool = False,
    mask: Tensor | None = None,
    transposed: bool = False,
    padding: int = 1,
    launch: Launch | None = None,
) -> Tensor:
    """x (N, B, H, W, Cin) with w (N, taps, Cin, Cout): (N, B, H, W, Cout), of x's type, summed in float32.

    bias (N, Cout), of any type, is added; then `relu` cuts what is negative, or `mask`, shaped as the result, what
    lies where it is not positive.  `transposed`: the gradient with respect to the input of the convolution whose
    weights are w, from that of its output, x; so x has w's last number of channels, the result w's second last.
    `padding` 0: the convolution takes no zeros around the image, and its output is smaller by two rows and columns.
    """
    padding = 2 - padding if transposed else padding
    y = x.new_empty(*x.shape[:2], *extent(x, w, padding), w.shape[2 if transposed else 3])
    _launch(x, w, bias, mask, y, None, relu, transposed, padding, launch)
    return y


def conv_pool_relu(
    x: Tensor, w: Tensor, bias: Tensor, padding: int = 1, launch: Launch | None = None
) -> tuple[Tensor, Tensor]:
    """The convolution, a 2×2 max-pool, then ReLU: (N, B, H/2, W/2, Cout), and which of the four passed, uint8.

    Of equals the first passes, in row-major order; 4: cut by the ReLU.  An odd last row or column is dropped.
    """
    height, width = extent(x, w, padding)
    a = x.new_empty(*x.shape[:2], height // 2, width // 2, w.shape[3])
    which = torch.empty_like(a, dtype=torch.uint8)
    _launch(x, w, bias, None, a, which, True, False, padding, launch)
    return a, which


def extent(x: Tensor, w: Tensor, padding: int) -> tuple[int, int]:
    """Rows and columns of what a convolution makes of x with so many zeros on each side."""
    more = 2 * padding - 2 if w.shape[1] == 9 else 0
    return x.shape[2] + more, x.shape[3] + more


def _launch(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    y: Tensor,
    which: Tensor | None,
    relu: bool,
    transposed: bool,
    padding: int,
    launch: Launch | None,
) -> None:
    clients, batch, _, _, cin = x.shape
    height, width = extent(x, w, padding)
    taps, cout, pool = w.shape[1], y.shape[-1], which is not None
    launch = launch or choose_launch("conv", cin, cout, taps, x.dtype)
    rows, columns = tile_of(height, width, launch.pixels, 2 if pool else 1)
    block_in, block_out = block_of(cin, launch.cin), block_of(cout, launch.cout)
    tiles = clients * batch * triton.cdiv(height, rows) * triton.cdiv(width, columns)
    out_tile = (rows // 2, columns // 2, block_out) if pool else (rows, columns, block_out)
    with torch.cuda.device_of(x):
        _conv[(tiles * triton.cdiv(cout, block_out),)](
            images(x, rows, columns, block_in),
            TensorDescriptor.from_tensor(
                w.flatten(0, 1), [1, block_out, block_in] if transposed else [1, block_in, block_out]
            ),
            y if bias is None else bias,
            images(y if mask is None else mask, *out_tile),
            images(y, *out_tile),
            images(y if which is None else which, *out_tile),
            batch,
            0 if bias is None else bias.stride(0),
            *(height, width, cin, cout, taps, rows, columns, block_in, block_out),
            *(bias is not None, relu, pool, mask is not None, transposed, padding),
            num_warps=launch.warps,
            num_stages=launch.stages,
        )


@triton.jit
def _conv(
    x, w, bias, mask, y, which, B, bias_stride,
    H: tl.constexpr, W: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr, TAPS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_IN: tl.constexpr, BLOCK_OUT: tl.constexpr,
    BIAS: tl.constexpr, RELU: tl.constexpr, POOL: tl.constexpr, MASK: tl.constexpr, TRANSPOSED: tl.constexpr,
    PADDING: tl.constexpr,
):  # fmt: skip
    """One tile of pixels, one block of output channels."""
    BLOCKS: tl.constexpr = (COUT + BLOCK_OUT - 1) // BLOCK_OUT
    STEPS: tl.constexpr = (CIN + BLOCK_IN - 1) // BLOCK_IN
    pid = tl.program_id(0)  # neighbours share pixels, then weights
    n = pid % BLOCKS * BLOCK_OUT
    image, h, v = position(pid // BLOCKS, H, W, ROWS, COLUMNS)
    client = image // B
    acc = tl.zeros((BLOCK_OUT, ROWS * COLUMNS), tl.float32)
    for i in range(TAPS * STEPS):  # one loop over taps and channels: one pipeline
        tap = i // STEPS
        k = i % STEPS * BLOCK_IN
        dh, dv = shift(tap, TAPS, PADDING)
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
    if POOL:  # all four of a maximum are in one thread's registers
        acc, at = _best_of_four(acc, ROWS, COLUMNS, BLOCK_OUT)
        at = tl.where(acc <= 0, 4, at).to(tl.uint8)
        out = tl.where(acc < 0, 0.0, acc).to(y.dtype)
        y.store([image, h // 2, v // 2, n], out.T.reshape(1, ROWS // 2, COLUMNS // 2, BLOCK_OUT))
        which.store([image, h // 2, v // 2, n], at.T.reshape(1, ROWS // 2, COLUMNS // 2, BLOCK_OUT))
    else:
        if RELU:
            acc = tl.where(acc < 0, 0.0, acc)  # keeps NaN, as torch does
        out = acc.to(y.dtype).T.reshape(1, ROWS, COLUMNS, BLOCK_OUT)
        if MASK:
            out = tl.where(mask.load([image, h, v, n]) > 0, out, 0.0).to(y.dtype)
        y.store([image, h, v, n], out)


@triton.jit
def _best_of_four(acc, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_OUT: tl.constexpr):
    """Maximum of each 2×2 pixels of acc (BLOCK_OUT, ROWS·COLUMNS) and which of the four it is, the first of equals."""
    left, right = acc.reshape(BLOCK_OUT, ROWS // 2, 2, COLUMNS // 2, 2).split()
    a, c = left.permute(0, 1, 3, 2).split()
    b, d = right.permute(0, 1, 3, 2).split()
    best, at = a, tl.zeros_like(a).to(tl.int32)
    best, at = _better(best, at, b, 1)
    best, at = _better(best, at, c, 2)
    best, at = _better(best, at, d, 3)
    pixels: tl.constexpr = ROWS * COLUMNS // 4
    return best.reshape(BLOCK_OUT, pixels), at.reshape(BLOCK_OUT, pixels)


@triton.jit
def _better(best, at, value, which):
    better = (value > best) | (value != value)  # NaN wins, as in torch
    return tl.where(better, value, best), tl.where(better, which, at)


@triton.jit
def position(tile, H: tl.constexpr, W: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The image (counted over all clients), first row and first column of a tile of pixels."""
    DOWN: tl.constexpr = (H + ROWS - 1) // ROWS
    ACROSS: tl.constexpr = (W + COLUMNS - 1) // COLUMNS
    return tile // (DOWN * ACROSS), tile // ACROSS % DOWN * ROWS, tile % ACROSS * COLUMNS


@triton.jit
def shift(tap, TAPS: tl.constexpr, PADDING: tl.constexpr):
    """Rows and columns from an output pixel to the input pixel of a tap."""
    place = tap if TAPS == 9 else tap + 4 * PADDING  # a single tap is in the pixel's own place
    return place // 3 - PADDING, place % 3 - PADDING


def images(x: Tensor, rows: int, columns: int, channels: int) -> TensorDescriptor:
    """x (N, B, H, W, C) for TMA, in tiles of rows × columns pixels of one image by a block of channels."""
    return TensorDescriptor.from_tensor(x.flatten(0, 1), [1, rows, columns, channels])


def tile_of(height: int, width: int, pixels: int, rows: int = 1) -> tuple[int, int]:
    """Rows, at least so many, and columns, powers of two, of a tile of at most so many pixels; 16 for tl.dot."""
    columns = min(triton.next_power_of_2(width), pixels // rows)
    return max(min(triton.next_power_of_2(height), pixels // columns), 16 // columns, rows), columns


def block_of(channels: int, most: int) -> int:
    """Channels of a block, a power of two, at least 16 for tl.dot."""
    return max(16, min(int(triton.next_power_of_2(channels)), most))
