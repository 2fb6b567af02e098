"""A model as a chain of layers: each takes the result of the one before, and nothing else.

That is what can be shrunk and described as a list.  Convolutions and linear layers are the *weighted* layers; what
stands between two of them treats every channel or neuron by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, fx, nn

ELEMENTWISE = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Identity, nn.Dropout,
)  # fmt: skip
POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)


class NotAChainError(Exception):
    """Why a model cannot be walked, as the end of a sentence."""


@dataclass(frozen=True)
class Step:
    name: str
    """Of the module, as in the model's state; of a function call, the name that the tracer gave it."""
    module: nn.Module

    @property
    def weighted(self) -> bool:
        return isinstance(self.module, nn.Conv2d | nn.Linear)


def chain(model: nn.Module, example: Tensor) -> list[Step]:
    """The steps of the model on inputs like `example`, a batch of any size."""
    steps = _traced(model)
    x = example.clone()  # layers may work in place
    with torch.no_grad():
        for step in steps:
            _check(step, x)
            x = step.module(x)
    names = [step.name for step in steps if step.weighted]
    if not names:
        raise NotAChainError("it has no convolution and no linear layer")
    if len(set(names)) < len(names):
        raise NotAChainError("it uses a layer twice")
    owned = {f"{name}.{part}" for name in names for part in ("weight", "bias")}
    for name, _ in model.named_parameters():
        if name not in owned:
            raise NotAChainError(f"its parameter {name} is of another kind of layer")
    return steps


def _traced(model: nn.Module) -> list[Step]:
    try:
        nodes = list(fx.symbolic_trace(model).graph.nodes)
    except Exception:  # whatever stops the tracer
        raise NotAChainError("what it computes depends on its inputs in ways that cannot be traced") from None
    steps: list[Step] = []
    for before, node in pairwise(nodes):
        if node.op == "output" and node.args == (before,):
            return steps
        if node.op == "call_module" and node.args == (before,) and not node.kwargs:
            steps.append(Step(node.target, model.get_submodule(node.target)))
        elif node.target in ("flatten", torch.flatten) and node.args == (before, 1) and not node.kwargs:
            steps.append(Step(node.name, nn.Flatten()))
        elif node.target in ("relu", torch.relu, nn.functional.relu) and node.args == (before,):
            steps.append(Step(node.name, nn.ReLU()))
        else:
            raise NotAChainError(f"its step {node.name} is not a layer that takes the result of the one before alone")
    raise NotAChainError("it returns more than its last result")


def _check(step: Step, x: Tensor) -> None:
    """Refuse what is unknown, and what would not keep channels apart."""
    match step.module:
        case nn.Conv2d() if step.module.groups == 1 and x.ndim == 4:
            return
        case nn.Linear() if x.ndim == 2:
            return
        case nn.Flatten(start_dim=1, end_dim=-1):
            return
        case nn.MaxPool2d(return_indices=False) | nn.AdaptiveAvgPool2d() if x.ndim == 4:
            return
        case nn.AvgPool2d(padding=0 | (0, 0), divisor_override=None) if x.ndim == 4:
            return
    if not isinstance(step.module, ELEMENTWISE):
        raise NotAChainError(f"its step {step.name}, {step.module} on inputs with {x.ndim} axes, is not supported")
