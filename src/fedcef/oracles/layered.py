"""All clients in one pass through a chain of linear layers, with the derivatives written out.

`stacked` differentiates the model by vmap and autograd, which for small layers takes longer than their products.  For
models of linear layers and what stands between them back-propagation is a dozen lines, each a product of stacks (S, …).
Sums are taken in another order than autograd's, so the last bits differ from `stacked`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedcef.core.chain import NotAChainError, Step, trace_chain
from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.core.round import Round
from fedcef.core.training import Training
from fedcef.oracles.gradient_oracle import GradientOracle
from fedcef.problems.accuracy import IGNORED
from fedcef.problems.client_data import Samples
from fedcef.problems.problem import Problem

Back = Callable[[Tensor, Tensor], Tensor]
"""(derivatives by an activation's values, these values) -> the derivatives by what it was applied to."""

ACTIVATIONS: dict[type[nn.Module], Back] = {
    nn.Identity: lambda error, values: error,
    nn.ReLU: lambda error, values: torch.ops.aten.threshold_backward.default(error, values, 0),
    nn.Tanh: torch.ops.aten.tanh_backward.default,
    nn.Sigmoid: torch.ops.aten.sigmoid_backward.default,
}


@dataclass(frozen=True)
class Layer:
    """A linear layer and the activation after it."""

    weight: slice  # of the flat vector
    bias: slice | None
    shape: tuple[int, ...]  # of the weight: (out, in)
    activation: nn.Module

    def forward(self, x: Tensor, inputs: Tensor) -> Tensor:
        """Parameters (S, p) and inputs (S, B, in) -> (S, B, out)."""
        weight = self._weight(x).transpose(1, 2)
        if self.bias is None:
            return self._activated(torch.bmm(inputs, weight))
        return self._activated(torch.baddbmm(x[:, self.bias].unsqueeze(1), inputs, weight))

    def backward(self, x: Tensor, inputs: Tensor, error: Tensor, gradient: Tensor) -> None:
        """The layer's part of the gradient (S, p), from the derivatives (S, B, out) by its linear outputs."""
        if self.bias is not None:
            torch.sum(error, 1, out=gradient[:, self.bias])
        mine = gradient[:, self.weight].view(len(x), *self.shape)
        if mine.is_contiguous():  # of one client: the product is written where it belongs
            torch.bmm(error.transpose(1, 2), inputs, out=mine)
        else:
            mine.copy_(torch.bmm(error.transpose(1, 2), inputs))

    def before(self, x: Tensor, error: Tensor) -> Tensor:
        """The derivatives by the layer's inputs: (S, B, out) -> (S, B, in)."""
        return torch.bmm(error, self._weight(x))

    def unactivated(self, error: Tensor, outputs: Tensor) -> Tensor:
        """The derivatives by the linear outputs, from those by the activation's values."""
        return ACTIVATIONS[type(self.activation)](error, outputs)

    def _weight(self, x: Tensor) -> Tensor:
        return x[:, self.weight].view(len(x), *self.shape)

    def _activated(self, linear: Tensor) -> Tensor:
        return linear if isinstance(self.activation, nn.Identity) else self.activation(linear)


class Layered(GradientOracle):
    """Chains of linear layers, all clients at once."""

    def __init__(self, problem: Problem, training: Training) -> None:
        super().__init__(problem, training)
        layers = read_layers(read_chain(problem.model), problem.layout, problem.data.example.inputs.ndim == 2)
        rounds = training.precision.startswith("bfloat16")
        if layers is None or rounds or (not self.batch_size and not problem.equal_sizes):
            raise ConfigError(
                "oracle = 'layered' needs a chain of linear layers with ReLU, Tanh, Sigmoid or nothing between them, "
                "precision float32 or float64, and minibatches or clients of equal size; use oracle = 'stacked'."
            )
        self._layers = layers
        self._by_outputs = derivative_of(problem.loss)

    def gradients(self, x: Tensor, clients: Tensor, batch: Samples | None, round_: Round, k: int) -> Tensor:
        """Every client's clipped gradient, by one pass forward and one back."""
        batch = self.problem.data.tables(clients) if batch is None else batch
        gradient = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        differentiate(self._layers, x, batch.inputs.flatten(2), batch.targets, self._by_outputs, gradient)
        return self.clipped(gradient)


def differentiate(
    layers: Sequence[Layer],
    x: Tensor,
    inputs: Tensor,
    targets: Tensor,
    by_outputs: Callable[[Tensor, Tensor], Tensor],
    gradient: Tensor,
    further: bool = False,
) -> Tensor | None:
    """The layers' parts of the gradient (S, p), and, if it goes on from there, the derivatives by their inputs.

    `by_outputs` gives those of the loss by its outputs.
    """
    values = [inputs]
    for layer in layers:
        values.append(layer.forward(x, values[-1]))
    error = by_outputs(values[-1], targets)
    for n in reversed(range(len(layers))):
        error = layers[n].unactivated(error, values[n + 1])
        layers[n].backward(x, values[n], error, gradient)
        if n or further:
            error = layers[n].before(x, error)
    return error if further else None


def read_chain(model: nn.Module) -> Sequence[Step]:
    """The steps of a chain; none if the model is no chain."""
    try:
        return [Step("", model)] if type(model) is nn.Linear else trace_chain(model)
    except NotAChainError:
        return ()


def read_layers(steps: Sequence[Step], layout: Layout, flat: bool) -> Sequence[Layer] | None:
    """The layers of a chain of linear ones, or None if it is another; the last has no activation.

    Inputs that are not flat, one vector for each sample, must be flattened first.
    """
    if steps and isinstance(steps[0].module, nn.Flatten) and steps[0].module.start_dim == 1:
        flat, steps = True, steps[1:]
    kinds = "".join("L" if type(step.module) is nn.Linear else "A" for step in steps)
    known = all(type(step.module) in (nn.Linear, *ACTIVATIONS) for step in steps)
    if not (flat and known and kinds.startswith("L") and kinds.endswith("L") and "AA" not in kinds):
        return None
    places = {name: (stretch, shape) for name, stretch, shape in layout.segments()}
    layers = []
    for n, step in enumerate(steps):
        if kinds[n] == "A":
            continue
        prefix = f"{step.name}." if step.name else ""
        weight, bias = places.get(f"{prefix}weight"), places.get(f"{prefix}bias")
        if weight is None or (step.module.bias is not None and bias is None):  # tied, under another name, or frozen
            return None
        after = steps[n + 1].module if kinds[n + 1 : n + 2] == "A" else nn.Identity()
        layers.append(Layer(weight[0], bias and bias[0], tuple(weight[1]), after))
    return layers if len({layer.weight.start for layer in layers}) == len(layers) else None


def derivative_of(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """(outputs (S, B, …), targets (S, B, …)) -> the derivatives of each client's loss by its outputs."""
    if loss is nn.functional.cross_entropy or _is_plain(loss):
        return cross_entropy_derivative
    derivative: Callable[[Tensor, Tensor], Tensor] = torch.func.vmap(torch.func.grad(loss))
    return lambda outputs, targets: derivative(outputs, targets)


def cross_entropy_derivative(outputs: Tensor, targets: Tensor) -> Tensor:
    """Softmax minus the class, over the number of samples that count."""
    counted = targets != IGNORED
    share = counted.to(outputs.dtype) / counted.sum(-1, keepdim=True).clamp(min=1)
    error = (outputs - outputs.amax(-1, keepdim=True)).exp_()  # a softmax of few classes is quicker in pieces
    error.div_(error.sum(-1, keepdim=True))
    places = targets.clamp(min=0).unsqueeze(-1)
    error.scatter_add_(-1, places, error.new_full((), -1.0).expand(places.shape))
    return error.mul_(share.unsqueeze(-1))


def _is_plain(loss: object) -> bool:
    """Whether it is the cross-entropy of classes, alike for all of them."""
    if type(loss) is not nn.CrossEntropyLoss:
        return False
    return (
        loss.weight is None and loss.reduction == "mean" and not loss.label_smoothing and loss.ignore_index == IGNORED
    )
