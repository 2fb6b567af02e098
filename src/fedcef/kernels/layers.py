"""Which networks the kernels can compute: chains of convolutions and linear layers, read from a module."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from fedcef.core.chain import NotAChainError, Step, trace_chain
from fedcef.core.layout import Layout
from fedcef.core.masks import Chance
from fedcef.kernels.dropout import Drop

# convolution, pool and ReLU in either order, dropout; flatten; linear, ReLU, dropout
CHAIN = re.compile("(C(PR|RP?)[DE]?)+F(LRD?)*L")
USUAL = re.compile("(CP?R)+F(LR)*L")


@dataclass(frozen=True)
class Layer:
    """A convolution or a linear layer, with the pool and the dropout that follow it; all but the last end in a ReLU."""

    weight: slice  # of the flat vector
    bias: slice
    shape: tuple[int, ...]  # of the weight: (out, in, 3, 3) or (out, in)
    padding: int
    pool: bool
    drop: Drop | None
    last: bool

    @property
    def convolves(self) -> bool:
        """Whether it is a convolution."""
        return len(self.shape) == 4

    @property
    def narrow(self) -> bool:
        """A linear layer too thin for the kernels, and for its time to matter: it is done in float32."""
        return not self.convolves and any(n % 16 for n in self.shape)

    def of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weight (N, *shape) and bias (N, out) as views of x (N, p)."""
        return x[:, self.weight].view(len(x), *self.shape), x[:, self.bias]


def read_layers(
    model: nn.Module, layout: Layout, input_shape: tuple[int, ...]
) -> tuple[tuple[Layer, ...], bool] | None:
    """The layers of a module with inputs of shape (C, H, W), or None if it is not such a chain.

    With them, whether the chain is of the usual kind: padded convolutions, a pool before its ReLU, no dropout.
    """
    try:
        steps = trace_chain(model)
    except NotAChainError:
        return None
    kinds = "".join(_kind(step) for step in steps)
    slices = {name: stretch for name, stretch, _ in layout.segments()}
    parameters = [f"{step.name}.{part}" for step in steps if step.weighted for part in ("weight", "bias")]
    chain = CHAIN.fullmatch(kinds.upper().replace("FD", "DF"))  # entries are dropped alike before and after
    if not chain or sorted(parameters) != sorted(slices) or len(input_shape) != 3:
        return None
    groups: list[list[Step]] = []
    for step in steps:
        groups += [[]] if step.weighted else []
        groups[-1].append(step)
    layers = tuple(_layer(group, slices, group is groups[-1]) for group in groups)
    return (layers, bool(USUAL.fullmatch(kinds))) if _fits(layers, input_shape) else None


def _layer(steps: list[Step], slices: dict[str, slice], last: bool) -> Layer:
    """A convolution or linear layer and what follows it up to the next."""
    module, name = steps[0].module, steps[0].name
    assert isinstance(module, nn.Conv2d | nn.Linear)
    drops = [step.module for step in steps if isinstance(step.module, nn.Dropout | nn.Dropout2d) and step.module.p]
    return Layer(
        weight=slices[f"{name}.weight"],
        bias=slices[f"{name}.bias"],
        shape=tuple(module.weight.shape),
        padding=_PADDINGS[module.padding] if isinstance(module, nn.Conv2d) else 0,
        pool=any(isinstance(step.module, nn.MaxPool2d) for step in steps),
        drop=Drop(Chance.of(drops[0].p), isinstance(drops[0], nn.Dropout2d)) if drops else None,
        last=last,
    )


_PADDINGS: dict[str | tuple[int, ...], int] = {(1, 1): 1, "same": 1, (0, 0): 0, "valid": 0}


def _kind(step: Step) -> str:
    """A letter of CHAIN, or "?" for what is not supported; a small one where it is not of the usual kind.

    Models with those were computed in another way before there were kernels for them.
    """
    module = step.module
    match module:
        case nn.Conv2d(kernel_size=(3, 3), stride=(1, 1), dilation=(1, 1), groups=1, padding_mode="zeros"):
            if module.padding == (1, 1):
                return "C"
            return "c" if module.padding in _PADDINGS else "?"
        case nn.MaxPool2d(kernel_size=2 | (2, 2), stride=2 | (2, 2), padding=0 | (0, 0), dilation=1 | (1, 1)):
            return "P" if not module.ceil_mode and not module.return_indices else "?"
        case nn.ReLU():
            return "r" if step.is_call else "R"
        case nn.Flatten(start_dim=1, end_dim=-1):
            return "F"
        case nn.Linear():
            return "L"
    drops: dict[type[nn.Module], str] = {nn.Dropout: "D", nn.Dropout2d: "E"}
    return drops.get(type(module), "?")  # not for what is derived from them


def _fits(layers: tuple[Layer, ...], input_shape: tuple[int, ...]) -> bool:
    """Whether the layers fit each other, and the kernels, which take channels in sixteens."""
    channels, height, width = input_shape
    for i, layer in enumerate(layers):
        if layer.shape[1] != channels or (layer.convolves and layer.shape[0] % 16):
            return False
        channels = layer.shape[0]
        if layer.convolves:
            height, width = height + 2 * layer.padding - 2, width + 2 * layer.padding - 2
        if layer.pool:
            height, width = height // 2, width // 2
        if layer.convolves and not layers[i + 1].convolves:
            channels = prod((channels, height, width))
    return True
