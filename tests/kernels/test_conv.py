"""The convolution kernels against torch's own operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedcef import kernels

if not kernels.available():
    pytest.skip("needs Triton, and CUDA or TRITON_INTERPRET=1", allow_module_level=True)

from fedcef.kernels.conv import Launch, conv, conv_pool_relu
from fedcef.kernels.order import cast, collect, taps_first
from fedcef.kernels.pool import patches, pool_relu_backward
from fedcef.kernels.weights import conv_weight_gradient

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Triton's interpreter computes bfloat16 products wrongly
DTYPES = [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32, torch.float16]
SHAPES = [(2, 2, 8, 8, 8, 16), (2, 2, 7, 5, 24, 24), (1, 1, 18, 20, 8, 8)]  # N, B, H, W, Cin, Cout


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


def reference(x: Tensor, w: Tensor, padding: int = 1) -> Tensor:
    """x (N, B, H, W, Cin) with w (N, 9 or 1, Cin, Cout), in float64."""
    side = 3 if w.shape[1] == 9 else 1
    images = [
        F.conv2d(
            image.double().permute(0, 3, 1, 2),
            weight.double().unflatten(0, (side, side)).permute(3, 2, 0, 1),
            padding=side // 2 * padding,
        )
        for image, weight in zip(x, w, strict=True)
    ]
    return torch.stack(images).permute(0, 1, 3, 4, 2)


def assert_near(value: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    error = torch.linalg.vector_norm(value.double() - expected) / torch.linalg.vector_norm(expected)
    assert error < (1e-5 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("taps", [1, 9])
def test_convolution(shape: tuple[int, ...], taps: int, dtype: torch.dtype) -> None:
    *images, cin, cout = shape
    x, w, bias = random(*images, cin, dtype=dtype), random(shape[0], taps, cin, cout, dtype=dtype), random(2, cout)
    bias = bias[: shape[0]]
    y = conv(x, w, bias, relu=True)
    assert y.dtype == dtype
    assert_near(y, F.relu(reference(x, w) + bias.double()[:, None, None, None]), dtype)


@pytest.mark.parametrize(("shape", "dtype"), [*((shape, DTYPES[0]) for shape in SHAPES), (SHAPES[0], DTYPES[1])])
def test_gradients(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    *images, cin, cout = shape
    x, dy, w = (random(*s, dtype=dtype) for s in ((*images, cin), (*images, cout), (shape[0], 9, cin, cout)))
    leaves = x.double().requires_grad_(), w.double().requires_grad_()
    dx, dw = torch.autograd.grad(reference(*leaves), leaves, dy.double())
    assert_near(conv(dy, w, mask=x, transposed=True), dx * (x > 0), dtype)
    weight, bias = conv_weight_gradient(x, dy)
    assert bias is not None
    assert weight.dtype == bias.dtype == torch.float32
    assert_near(weight, dw, dtype)
    assert_near(bias, dy.double().sum((1, 2, 3)), dtype)


@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[2]])
def test_without_padding(shape: tuple[int, ...]) -> None:
    """The output is smaller by two rows and columns; the gradient of the input is as large as that."""
    clients, batch, height, width, cin, cout = shape
    x, w, bias = random(*shape[:4], cin), random(clients, 9, cin, cout), random(clients, cout)
    leaves = x.double().requires_grad_(), w.double().requires_grad_()
    y = reference(*leaves, padding=0)
    assert_near(conv(x, w, bias, padding=0), y + bias.double()[:, None, None, None], x.dtype)
    dy = random(clients, batch, height - 2, width - 2, cout)
    dx, dw = torch.autograd.grad(y, leaves, dy.double())
    assert_near(conv(dy, w, mask=x, transposed=True, padding=0), dx * (x > 0), x.dtype)
    weight, total = conv_weight_gradient(x, dy, padding=0)
    assert total is not None
    assert_near(weight, dw, x.dtype)
    assert_near(total, dy.double().sum((1, 2, 3)), x.dtype)


def test_pool_and_patches_without_padding() -> None:
    x, w, bias = random(2, 2, 7, 9, 16), random(2, 9, 16, 16), random(2, 16)
    pooled, _ = conv_pool_relu(x, w, bias, padding=0)
    y = reference(x, w, padding=0) + bias.double()[:, None, None, None]
    expected = F.relu(F.max_pool2d(y.flatten(0, 1).permute(0, 3, 1, 2), 2)).permute(0, 2, 3, 1).unflatten(0, (2, 2))
    assert_near(pooled, expected, x.dtype)
    inputs = random(2, 2, 3, 6, 7)
    found = patches(inputs, inputs.dtype, padding=0)
    assert torch.equal(found[..., :27], patches(inputs, inputs.dtype)[:, :, 1:-1, 1:-1, :27])
    assert not found[..., 27:].any()


@pytest.mark.parametrize(
    "launch", [Launch(16, 16, 16, 4, 2, taps=3, waves=1), Launch(32, 16, 16, 4, 2, taps=9, waves=1)]
)
def test_blocks_smaller_than_the_sizes(launch: Launch) -> None:
    x, dy, w = random(1, 1, 5, 6, 24), random(1, 1, 5, 6, 24), random(1, 9, 24, 24)
    assert_near(conv(x, w, launch=launch), reference(x, w), x.dtype)
    for mine, expected in zip(conv_weight_gradient(x, dy, launch=launch), conv_weight_gradient(x, dy), strict=True):
        assert mine is not None
        assert expected is not None
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-4)


def test_weight_gradient_of_a_product_goes_straight_to_its_scaled_place() -> None:
    d, h, scale = random(3, 1, 1, 20, 16), random(3, 1, 1, 20, 48), random(3)
    out = torch.zeros(3, 16 * 48 + 6, device=DEVICE)  # an odd distance from client to client
    place = out[:, 4:-2].view(3, 16, 48)
    conv_weight_gradient(d, h, taps=1, bias=False, out=place, scale=scale)
    expected = torch.einsum("nbo,nbi->noi", d[:, 0, 0].double(), h[:, 0, 0].double()) * scale.double()[:, None, None]
    assert_near(place, expected, d.dtype)
    assert torch.all(out[:, :4] == 0)
    assert torch.all(out[:, -2:] == 0)


@pytest.mark.parametrize("shape", [(2, 2, 8, 8, 8, 16), (2, 3, 7, 5, 24, 48), (1, 1, 4, 40, 8, 16)])
def test_pool(shape: tuple[int, ...]) -> None:
    *images, cin, cout = shape
    x, w, bias = random(*images, cin).round(), random(shape[0], 9, cin, cout).round(), random(shape[0], cout).round()
    y = (reference(x, w) + bias.double()[:, None, None, None]).requires_grad_()  # whole numbers: exact, and with ties
    pooled = F.relu(F.max_pool2d(y.flatten(0, 1).permute(0, 3, 1, 2), 2))
    expected = pooled.permute(0, 2, 3, 1).unflatten(0, shape[:2])
    a, which = conv_pool_relu(x, w, bias)
    assert torch.equal(a.double(), expected)
    da = random(*a.shape)
    dy = pool_relu_backward(da, which, *shape[2:4])
    assert torch.equal(dy.double(), torch.autograd.grad(expected, y, da.double())[0])


@pytest.mark.parametrize("channels", [1, 3])
def test_patches(channels: int) -> None:
    images = random(2, 3, channels, 5, 6)
    p = patches(images, torch.float32)
    columns = F.unfold(images.flatten(0, 1), 3, padding=1).view(2, 3, channels, 9, 5, 6).permute(0, 1, 4, 5, 3, 2)
    assert p.shape[-1] % 16 == 0
    assert torch.equal(p[..., : 9 * channels], columns.flatten(4))
    assert torch.all(p[..., 9 * channels :] == 0)
    last = images.flatten(0, 1).to(memory_format=torch.channels_last).unflatten(0, (2, 3))
    assert torch.equal(patches(last, torch.float32), p)


@pytest.mark.parametrize(("outputs", "inputs", "rows"), [(16, 3, 32), (48, 40, 360)])
def test_order_of_weights(outputs: int, inputs: int, rows: int) -> None:
    flat, parts, scale = random(2, outputs * inputs * 9 + 7), random(4, 2, rows, outputs), random(2)
    weight = flat[:, 3:-4].view(2, outputs, inputs, 3, 3)
    w = taps_first(weight, torch.float32, rows)
    assert torch.equal(w[:, : 9 * inputs].view(2, 3, 3, inputs, outputs).permute(0, 4, 3, 1, 2), weight)
    assert torch.all(w[:, 9 * inputs :] == 0)
    assert torch.equal(cast(weight, torch.float16), weight.half())
    expected = flat.clone()
    sums = parts.sum(0)[:, : 9 * inputs].view(2, 3, 3, inputs, outputs).permute(0, 4, 3, 1, 2)
    expected[:, 3:-4] = (sums * scale.view(2, 1, 1, 1, 1)).flatten(1)
    collect(parts, weight, scale)
    torch.testing.assert_close(flat, expected)
