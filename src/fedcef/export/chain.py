"""Which chains of layers can be shrunk: what stands between two weighted layers treats every channel by itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedcef.core.chain import NotAChainError, Step, trace_chain

ELEMENTWISE = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Identity, nn.Dropout,
)  # fmt: skip
POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)


def read_chain(model: nn.Module, example: Tensor) -> list[Step]:
    """The steps of the model on inputs like `example`, a batch of any size; `NotAChainError` if one is unknown."""
    steps = trace_chain(model)
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
