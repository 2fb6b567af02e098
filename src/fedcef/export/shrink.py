"""Take zero filters and neurons out of a trained model, without changing what it computes.

A unit is a channel of a convolution or a neuron of a linear layer.  Between a layer and the next weighted one,

* a unit that the next layer gives no weight to is not needed;
* a unit all of whose incoming weights are zero is the constant a = act(bias).  If a = 0 it is not needed.  Otherwise
  the next layer's bias takes it over: bias += a·(weights out of the unit), summed over all positions.  A padded
  convolution sees a constant channel fall to zero at its borders, which no bias can do; there all constant channels
  become one.

What is taken out of one layer can make units of its neighbours superfluous, hence the repetition.  A layer keeps at
least one unit, and inputs and outputs of the model stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedcef.core.chain import Step
from fedcef.export.chain import POOLS, read_chain

Weighted = nn.Conv2d | nn.Linear


def shrink(model: nn.Module, example: Tensor) -> nn.Module:
    """A copy of the model without its superfluous units; `NotAChainError` if it cannot be walked."""
    model = deepcopy(model).eval()
    while True:
        steps = read_chain(model, example)
        before = count(model)
        weighted = [i for i, step in enumerate(steps) if step.weighted]
        for first, second in pairwise(weighted):
            _shrink_between(model, steps[first].name, steps[second].name, steps[first + 1 : second])
        if count(model) == before:
            return model


def count(model: nn.Module) -> int:
    """How many parameters the model has."""
    return sum(p.numel() for p in model.parameters())


@torch.no_grad()
def _shrink_between(model: nn.Module, first_name: str, second_name: str, between: Sequence[Step]) -> None:
    """Drop the first layer's superfluous units, and the second layer's weights for them."""
    first, second = _layer(model, first_name), _layer(model, second_name)
    units = len(first.weight)
    into = first.weight.double().flatten(1)  # (units, …)
    out_of = second.weight.double().reshape(len(second.weight), units, -1)  # (outputs, units, positions)
    values = _through(between, _bias(first))

    constant = ~into.any(1)
    dropped = ~out_of.any(2).any(0) | (constant & (values == 0))
    moved = constant & ~dropped
    bias = None if second.bias is None else second.bias.double()
    if isinstance(second, nn.Conv2d) and second.padding not in (0, (0, 0), "valid"):
        if moved.any():  # the largest, for the sake of rounding, stands for all of them
            stays = int((values.abs() * moved).argmax())
            out_of[:, stays] = torch.einsum("oup,u->op", out_of, values * moved / values[stays])
            moved[stays] = False
    elif moved.any():
        added = torch.einsum("oup,u->o", out_of, values * moved)
        bias = added if bias is None else bias + added
    dropped |= moved
    if dropped.all():
        dropped[0] = False
        out_of[:, 0] = 0  # what it gave is in the bias, or was nothing
    kept = ~dropped
    kept_bias = None if first.bias is None else first.bias[kept]
    model.set_submodule(first_name, _rebuilt(first, first.weight[kept], kept_bias))
    weight = out_of[:, kept].reshape(len(second.weight), -1, *second.weight.shape[2:])
    model.set_submodule(second_name, _rebuilt(second, weight, bias))


def _layer(model: nn.Module, name: str) -> Weighted:
    layer = model.get_submodule(name)
    assert isinstance(layer, Weighted)
    return layer


def _bias(layer: Weighted) -> Tensor:
    """What a unit gives whose weights are zero: (units,), in the layer's type."""
    return layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias.detach().clone()


def _through(between: Sequence[Step], constants: Tensor) -> Tensor:
    """What constants have become when they reach the next layer; pools and flattening leave them."""
    for step in between:
        if not isinstance(step.module, (*POOLS, nn.Flatten)):
            constants = step.module(constants)
    return constants.double()


def _rebuilt(layer: Weighted, weight: Tensor, bias: Tensor | None) -> Weighted:
    """The layer with these parameters, of which there may be fewer."""
    outputs, inputs = weight.shape[:2]
    made: Weighted
    if isinstance(layer, nn.Linear):
        made = nn.Linear(inputs, outputs, bias is not None)
    else:
        options = {name: getattr(layer, name) for name in ("kernel_size", "stride", "padding", "dilation")}
        made = nn.Conv2d(inputs, outputs, bias=bias is not None, padding_mode=layer.padding_mode, **options)
    made = made.to(layer.weight.device, layer.weight.dtype).train(layer.training).requires_grad_(False)
    made.weight.copy_(weight)
    if made.bias is not None and bias is not None:
        made.bias.copy_(bias)
    return made
