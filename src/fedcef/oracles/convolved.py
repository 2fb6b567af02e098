"""One client after the other through a chain of convolutions and linear layers, with the derivatives written out.

What `loop` leaves to autograd, for models of which the derivatives are known: less memory is asked for, and gradients
are written where they belong.  In float32 it goes through oneDNN from end to end (`onednn.py`).  Sums are taken in
another order than autograd's, so the last bits differ from `loop`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fedcef.core.chain import Step
from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.core.training import Training
from fedcef.oracles.layered import ACTIVATIONS, Layer, derivative_of, differentiate, read_chain, read_layers
from fedcef.oracles.loop import ClientLoop
from fedcef.oracles.onednn import OneClientsLayer, Pair, is_faster, pooled
from fedcef.problems.client_data import Samples
from fedcef.problems.problem import Problem

Back = Callable[[Tensor], Tensor]
"""From the derivatives by a stage's outputs to those by its inputs; writes its part of the gradient on the way."""

_aten: Any = torch.ops.aten


class Stage(ABC):
    """A layer of the part with convolutions."""

    @abstractmethod
    def forward(self, x: Tensor, gradient: Tensor, inputs: Tensor) -> tuple[Tensor, Back]:
        """Images (B, channels, height, width) -> (B, …), and the way back; parameters and gradient are (p,)."""


@dataclass(frozen=True)
class Convolution(Stage):
    """A convolution with weights of its own."""

    weight: slice  # of the flat vector
    bias: slice | None
    shape: tuple[int, ...]
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    is_first: bool
    """Whether nobody needs the derivatives by its inputs."""

    def forward(self, x: Tensor, gradient: Tensor, inputs: Tensor) -> tuple[Tensor, Back]:
        """The convolution, and its derivatives by weights, bias and inputs."""
        weight = x[self.weight].view(self.shape)
        bias = None if self.bias is None else x[self.bias]
        how = (self.stride, self.padding, self.dilation, False, (0, 0), self.groups)
        outputs = _aten.convolution.default(inputs, weight, bias, *how)

        def back(error: Tensor) -> Tensor:
            with_bias = self.bias is not None and error.is_mkldnn  # otherwise a sum by itself is quicker
            biases, wanted = [self.shape[0]] if with_bias else None, (not self.is_first, True, with_bias)
            by_inputs, by_weight, by_bias = _aten.convolution_backward.default(
                error, inputs, weight, biases, *how, wanted
            )
            gradient[self.weight].view(self.shape).copy_(by_weight)
            if self.bias is not None:
                gradient[self.bias] = by_bias if with_bias else error.sum((0, 2, 3))
            return error if self.is_first else by_inputs

        return outputs, back


@dataclass(frozen=True)
class Pool(Stage):
    """The largest of each window."""

    kernel: Pair
    stride: Pair
    padding: Pair

    def forward(self, x: Tensor, gradient: Tensor, inputs: Tensor) -> tuple[Tensor, Back]:
        """The largest of each window, and the error at its place."""
        if inputs.is_mkldnn:
            return pooled(inputs, self.kernel, self.stride, self.padding)
        how = (self.kernel, self.stride, self.padding, (1, 1), False)
        outputs, places = _aten.max_pool2d_with_indices.default(inputs, *how)
        return outputs, lambda error: _aten.max_pool2d_with_indices_backward.default(error, inputs, *how, places)


@dataclass(frozen=True)
class Activation(Stage):
    """A function of each entry, applied where its values are not needed without it."""

    module: nn.Module

    def forward(self, x: Tensor, gradient: Tensor, inputs: Tensor) -> tuple[Tensor, Back]:
        """The activation, and its derivative by what it returned."""
        outputs = inputs.relu_() if isinstance(self.module, nn.ReLU) else self.module(inputs)
        return outputs, lambda error: ACTIVATIONS[type(self.module)](error, outputs)


class Convolved(ClientLoop):
    """Chains of convolutions, then linear layers; one client for each core."""

    def __init__(self, problem: Problem, training: Training, workers: int | None = None) -> None:
        super().__init__(problem, training, workers)
        on_cpu = problem.z0.device.type == "cpu"
        parts = read_parts(read_chain(problem.model), problem.layout) if on_cpu else None
        if parts is None or training.precision.startswith("bfloat16") or problem.data.example.inputs.ndim != 4:
            raise ConfigError(
                "oracle = 'layered' with convolutions needs a CPU, precision float32 or float64, and a chain of "
                "convolutions, max-pooling, ReLU, Tanh or Sigmoid, then linear layers; use oracle = 'loop'."
            )
        self._stages, self._layers = parts
        self._by_outputs = derivative_of(problem.loss)
        bends = (stage.module for stage in self._stages if isinstance(stage, Activation))
        self._by_onednn = is_faster(problem.z0.dtype) and all(isinstance(m, nn.ReLU | nn.Identity) for m in bends)
        if self._by_onednn:
            self._layers = [OneClientsLayer(**vars(layer)) for layer in self._layers]

    @torch.no_grad()
    def _write(self, out: Tensor, x: Tensor, samples: Samples, key: Tensor | None) -> None:
        images, ways_back = self._ordered(samples.inputs), []
        for stage in self._stages:
            images, back = stage.forward(x, out, images)
            ways_back.append(back)
        shape, plain = images.shape, images.to_dense() if self._by_onednn else images
        features, targets = plain.flatten(1).unsqueeze(0), samples.targets.unsqueeze(0)
        errors = differentiate(
            self._layers, x.unsqueeze(0), features, targets, self._by_outputs, out.unsqueeze(0), further=True
        )
        assert errors is not None, "it goes further"
        error = self._ordered(errors.view(shape))
        for back in reversed(ways_back):
            error = back(error)

    def _ordered(self, images: Tensor) -> Tensor:
        """Images in the order of memory that convolutions are fast with."""
        # those of one channel are contiguous in either order, and only `to` says which: convolutions go by that
        return images.to_mkldnn() if self._by_onednn else images.to(memory_format=torch.channels_last)


def read_parts(steps: Sequence[Step], layout: Layout) -> tuple[Sequence[Stage], Sequence[Layer]] | None:
    """The stages before images are flattened and the linear layers after that, or None for another kind of model."""
    cut = next((n for n, step in enumerate(steps) if isinstance(step.module, nn.Flatten)), None)
    if not cut or steps[cut].module.start_dim != 1 or not isinstance(steps[0].module, nn.Conv2d):
        return None
    places = {name: (stretch, shape) for name, stretch, shape in layout.segments()}
    stages = [_stage(step, places, is_first=not n) for n, step in enumerate(steps[:cut])]
    layers = read_layers(steps[cut + 1 :], layout, flat=True)
    twice = any(isinstance(a, Activation) and isinstance(b, Activation) for a, b in pairwise(stages))
    if layers is None or None in stages or twice:  # the second would overwrite what the first one's derivative needs
        return None
    weights = [part.weight.start for part in (*stages, *layers) if isinstance(part, Convolution | Layer)]
    return (stages, layers) if len(set(weights)) == len(weights) else None  # type: ignore[return-value]


def _stage(step: Step, places: dict[str, tuple[slice, tuple[int, ...]]], is_first: bool) -> Stage | None:
    module = step.module
    if type(module) in ACTIVATIONS:
        return Activation(module)
    if type(module) is nn.MaxPool2d:
        plain = not (module.ceil_mode or module.return_indices) and _pair(module.dilation) == (1, 1)
        return Pool(_pair(module.kernel_size), _pair(module.stride), _pair(module.padding)) if plain else None
    weight, bias = places.get(f"{step.name}.weight"), places.get(f"{step.name}.bias")
    usual = type(module) is nn.Conv2d and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    if not usual or weight is None or (module.bias is not None and bias is None):
        return None
    stride, padding, dilation = (_pair(getattr(module, name)) for name in ("stride", "padding", "dilation"))
    where = (weight[0], bias and bias[0], tuple(weight[1]))
    return Convolution(*where, stride, padding, dilation, int(module.groups), is_first)  # type: ignore[arg-type]


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
