"""What oneDNN does faster than torch's own kernels: pooling in its own order of memory, and products.

Torch pools with an index of eight bytes for each entry, where oneDNN keeps one byte, and multiplies float32 by MKL,
which on AMD's processors reaches half of oneDNN's rate.  Images in oneDNN's order stay in it from one convolution to
the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedcef.oracles.layered import Layer

Pair = tuple[int, int]

_aten: Any = torch.ops.aten


def is_faster(dtype: torch.dtype) -> bool:
    """Whether there is oneDNN for this type of number, on a processor for which it was written."""
    if dtype != torch.float32 or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # not part of torch's public interface
        return False
    return torch.backends.cpu.get_cpu_capability().startswith("AVX")


def pooled(inputs: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The largest of each window, and the way back; images in oneDNN's order.  NaN is passed over."""
    with torch.enable_grad():  # otherwise the places of the largest entries are not kept
        outputs = torch.mkldnn_max_pool2d(inputs.detach().requires_grad_(), kernel, stride, padding).detach()
    how = (kernel, stride, padding, (1, 1), False)
    return outputs, lambda error: _aten.mkldnn_max_pool2d_backward.default(error, outputs, inputs, *how)


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left · rightᵀ + bias, of matrices in any order of memory."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise.default(left, right, bias, "none", [], "")
    return result


class OneClientsLayer(Layer):
    """A linear layer of one client, S = 1."""

    def forward(self, x: Tensor, inputs: Tensor) -> Tensor:
        """Parameters (1, p) and inputs (1, B, in) -> (1, B, out)."""
        bias = None if self.bias is None else x[0, self.bias]
        return self._activated(product(inputs[0], self._weight(x)[0], bias).unsqueeze(0))

    def backward(self, x: Tensor, inputs: Tensor, error: Tensor, gradient: Tensor) -> None:
        """The layer's part of the gradient (1, p), from the derivatives (1, B, out) by its linear outputs."""
        if self.bias is not None:
            torch.sum(error, 1, out=gradient[:, self.bias])
        gradient[0, self.weight].view(self.shape).copy_(product(error[0].t(), inputs[0].t()))

    def before(self, x: Tensor, error: Tensor) -> Tensor:
        """The derivatives by the layer's inputs: (1, B, out) -> (1, B, in)."""
        return product(error[0], self._weight(x)[0].t()).unsqueeze(0)
