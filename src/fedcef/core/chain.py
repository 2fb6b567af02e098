"""A model as a chain of layers, each of which takes the result of the one before and nothing else.

That is what can be shrunk, described as a list, or computed for all clients at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import fx, nn


class NotAChainError(Exception):
    """Why a model is no chain, as the end of a sentence."""


@dataclass(frozen=True)
class Step:
    """One layer of a chain."""

    name: str
    """Of the module, as in the model's state; of a function call, the name that the tracer gave it."""
    module: nn.Module
    """The model's own, or for a function call one that does the same."""
    is_call: bool = False
    """Whether it is a function call in the model's `forward`."""

    @property
    def weighted(self) -> bool:
        """Whether it is a convolution or a linear layer."""
        return isinstance(self.module, nn.Conv2d | nn.Linear)


def trace_chain(model: nn.Module) -> list[Step]:
    """The layers of a model in the order of their calls; `NotAChainError` if it is no chain."""
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
            steps.append(Step(node.name, nn.Flatten(), is_call=True))
        elif node.target in ("relu", torch.relu, nn.functional.relu) and node.args == (before,):
            steps.append(Step(node.name, nn.ReLU(), is_call=True))
        else:
            raise NotAChainError(f"its step {node.name} is not a layer that takes the result of the one before alone")
    raise NotAChainError("it returns more than its last result")
