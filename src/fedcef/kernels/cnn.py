"""The gradients of all clients' copies of a convolutional network at once, one launch per layer.

Forward and backward pass are written out.  Activations are (N, B, H, W, C) of clients, batch, rows, columns and
channels, in the type that the products take; every sum is in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedcef.core.layout import Layout
from fedcef.kernels.conv import conv, conv_pool_relu, extent
from fedcef.kernels.layers import Layer, read_layers
from fedcef.kernels.order import cast, collect, taps_first
from fedcef.kernels.pool import patches, pool_relu_backward
from fedcef.kernels.weights import conv_weight_gradient

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Record:
    """What a layer's forward pass leaves for its backward pass."""

    layer: Layer
    input: Tensor
    weight: Tensor  # as the products take it
    image: tuple[int, ...] = ()  # (C, H, W) of what was flattened to be the input, or of what was pooled
    which: Tensor | None = None  # of conv_pool_relu


@dataclass
class Gradient:
    """Of a layer's parameters, float32; of its weight in one of three forms."""

    layer: Layer
    bias: Tensor  # (N, out)
    parts: Tensor | None = None  # of a convolution: what conv_weight_gradient would sum, (S, N, rows, out)
    factors: tuple[Tensor, Tensor] | None = None  # of a linear layer: of the product, (N, B, out) and (N, B, in)
    weight: Tensor | None = None  # of a narrow one: as it is, (N, *shape)

    def squared_norm(self) -> Tensor:
        """(N,), of parts in one piece.  ‖dᵀh‖² = <ddᵀ, hhᵀ>: no pass over the product, which is most parameters."""
        norm = self.bias.square().sum(1)
        if self.factors is not None:
            d, h = (_gram(factor) for factor in self.factors)
            return norm + (d * h).sum((1, 2))
        whole = self.parts[0] if self.parts is not None else self.weight
        assert whole is not None
        return norm + whole.square().flatten(1).sum(1)

    def write(self, out: Tensor, scale: Tensor | None) -> None:
        """Into its place in out (N, p), times scale (N,)."""
        weight, bias = self.layer.of(out)
        if self.factors is not None:
            d, h = (_row(factor) for factor in self.factors)
            conv_weight_gradient(d, h, taps=1, bias=False, out=weight, scale=scale)
        if self.parts is not None:
            collect(self.parts, weight, scale)
        for view, value in ((weight, self.weight), (bias, self.bias)):
            if value is not None and scale is None:
                view.copy_(value)
            elif value is not None and scale is not None:
                torch.mul(value, scale.view(-1, *[1] * (value.ndim - 1)), out=view)


@dataclass(frozen=True)
class BatchedNetwork:
    """A chain of 3×3 convolutions with a ReLU and perhaps a 2×2 max-pool, then linear layers; dropout in between."""

    layers: tuple[Layer, ...]
    size: int  # p
    usual: bool
    """Whether such chains have been computed by these kernels all along; others were not always known to them."""

    @classmethod
    def of(cls, model: nn.Module, layout: Layout, input_shape: tuple[int, ...]) -> BatchedNetwork | None:
        """The network of a module with inputs of shape (C, H, W), or None if it is not such a chain."""
        found = read_layers(model, layout, input_shape)
        return None if found is None else cls(found[0], layout.size, found[1])

    @property
    def drops(self) -> bool:
        """Whether there are masks to draw."""
        return any(layer.drop for layer in self.layers)

    def gradients(
        self,
        x: Tensor,
        inputs: Tensor,
        targets: Tensor,
        loss: Loss,
        dtype: torch.dtype,
        clip_norm: float | None = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        """Each client's gradient of its mean loss, (N, p) float32, scaled to at most `clip_norm`.

        x (N, p) float32; inputs (N, B, C, H, W), of any strides; targets (N, B); dtype: of the products' operands;
        keys (N,): what each client's dropout masks are drawn from.
        """
        records, logits = self._forward(x, inputs, dtype, keys)
        gradients = list(_backward(records, loss_gradients(loss, logits, targets), partial=clip_norm is None))
        scale = None
        if clip_norm is not None:
            norm = torch.stack([gradient.squared_norm() for gradient in gradients]).sum(0).sqrt()
            scale = torch.clamp(clip_norm / norm, max=1.0)
        out = torch.empty(len(x), self.size, device=x.device)
        for gradient in gradients:
            gradient.write(out, scale)
        return out

    @torch.no_grad()
    def _forward(
        self, x: Tensor, inputs: Tensor, dtype: torch.dtype, keys: Tensor | None
    ) -> tuple[list[Record], Tensor]:
        """The logits (N, B, classes), float32."""
        records: list[Record] = []
        used = 0  # of the sequences of bits that masks are drawn from
        h = patches(inputs, dtype, self.layers[0].padding)
        for layer in self.layers:
            weight, bias = layer.of(x)
            if layer.convolves:
                taps = 9 if records else 1  # the first layer's input is patches
                w = taps_first(weight, dtype, taps * h.shape[-1]).view(len(x), taps, h.shape[-1], -1)
                record = Record(layer, h, w)
                if layer.pool:
                    record.image = (layer.shape[0], *extent(h, w, layer.padding))
                    h, record.which = conv_pool_relu(h, w, bias, layer.padding)
                else:
                    h = conv(h, w, bias, relu=True, padding=layer.padding)
            else:
                w = weight if layer.narrow else cast(weight, dtype)
                image = (h.shape[4], h.shape[2], h.shape[3]) if h.ndim == 5 else ()
                if image:  # torch flattens in the order C, H, W
                    h = h.permute(0, 1, 4, 2, 3).flatten(2)
                h = h.to(w.dtype).contiguous()
                record = Record(layer, h, w, image)
                if layer.narrow:
                    h = torch.baddbmm(bias.unsqueeze(1), h, w.mT)
                    h = h if layer.last else h.relu_()
                else:
                    h = conv(_row(h), w.unsqueeze(1), bias, relu=not layer.last, transposed=True).flatten(1, 3)
            if layer.drop is not None:
                assert keys is not None, "dropout draws from keys"
                layer.drop.apply(h, keys, used)
                used += layer.drop.words(h)
            records.append(record)
        return records, h.float()


def loss_gradients(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient of every client's own loss by its outputs (N, B, classes); targets (N, B).

    A loss over all clients' samples at once would do where it is a plain mean.  With weights of classes or ignored
    targets each client divides by another number.
    """
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        try:
            losses = torch.func.vmap(loss)(leaf, targets)
        except RuntimeError:  # vmap does not know some operation of it
            losses = torch.stack([loss(*of_client) for of_client in zip(leaf, targets, strict=True)])
        return torch.autograd.grad(losses.sum(), leaf)[0]


@torch.no_grad()
def _backward(records: list[Record], d: Tensor, partial: bool) -> Iterator[Gradient]:
    """Each layer's gradient, from the last to the first; d (N, B, classes): the logits'."""
    for i, record in reversed(list(enumerate(records))):
        layer, h, w = record.layer, record.input, record.weight
        d = d.to(w.dtype)
        if record.which is not None:
            d = pool_relu_backward(d, record.which, *record.image[1:])
        yield _gradient(layer, h, d, w, partial)
        if not i:
            return
        before = records[i - 1].layer
        # nothing passes where the ReLU or the dropout before this layer left a zero; a pool knows where itself
        mask = None if before.pool and not before.drop else h
        if layer.convolves:
            d = conv(d, w, mask=mask, transposed=True, padding=layer.padding)
        elif layer.narrow:
            d = torch.bmm(d, w)
            d = d if mask is None else d.where(mask > 0, 0)
        else:
            d = conv(_row(d), w.unsqueeze(1), mask=None if mask is None else _row(mask)).flatten(1, 3)
        if before.drop:
            d = d.mul_(before.drop.chance.scale)
        if record.image and not layer.convolves:
            d = d.view(*d.shape[:2], *record.image).permute(0, 1, 3, 4, 2).contiguous()


def _gradient(layer: Layer, h: Tensor, d: Tensor, w: Tensor, partial: bool) -> Gradient:
    """Of a layer with input h and prepared weight w, from the gradient d of its output before pool and ReLU."""
    if layer.convolves:
        dw, db = conv_weight_gradient(h, d, taps=w.shape[1], partial=partial, padding=layer.padding)
        assert db is not None
        return Gradient(layer, db, parts=dw.view(-1, len(h), *w.shape[1:]).flatten(2, 3))
    bias = d.sum(1, dtype=torch.float32)
    if layer.narrow:
        return Gradient(layer, bias, weight=torch.bmm(d.mT, h))
    return Gradient(layer, bias, factors=(d, h))


def _row(t: Tensor) -> Tensor:
    """(N, B, C) as one image of one row of B pixels: a matrix product is a convolution of one tap."""
    return t[:, None, None]


def _gram(t: Tensor) -> Tensor:
    """t·tᵀ of t (N, B, C), float32: (N, B, B)."""
    if t.is_cuda and t.dtype != torch.float32:
        return torch.bmm(t, t.mT, out_dtype=torch.float32)
    return torch.bmm(t.float(), t.float().mT)
