"""Dropout layers whose masks are a function of a key: of the round, the client and the local step.

Torch's own draw from a generator, which one thread at a time can use, which `vmap` refuses, and which gives other
numbers on another device.  Here a pass through the model has one key, whose sequence of bits the layers use up in the
order of their calls; a layer that is called twice draws twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod, sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from fedcef.core import rng
from fedcef.core.masks import Chance
from fedcef.problems.buffers import Statistics
from fedcef.problems.copying import copied

if TYPE_CHECKING:
    from fedcef.problems.problem import Problem

Shape = tuple[int, ...]

_SELU = 1.7580993408473766  # SELU goes to minus this far below zero, and alpha dropout puts that in place of an entry


class Masks:
    """What the dropout layers of one copy of a model draw from in a pass through it."""

    def __init__(self) -> None:
        self._key: Tensor | None = None
        self._used = 0

    def start(self, key: Tensor) -> None:
        """Begin a pass with this key, 0-dim."""
        self._key, self._used = key, 0

    def draw(self, chance: Chance, shape: Shape) -> Tensor:
        """The next mask of the pass: which entries are kept."""
        assert self._key is not None, "a pass begins with a key"
        count = prod(shape)
        mask = chance.draw(self._key, count, self._used).view(shape)
        self._used += chance.words(count)
        return mask


@dataclass(frozen=True)
class Copy:
    """A model for one thread to train: in training mode, with dropout layers that draw from its masks."""

    model: nn.Module
    masks: Masks

    @classmethod
    def of(cls, model: nn.Module, statistics: Statistics = Statistics()) -> Copy:
        """A copy of the model, which itself stays as it is; layers with running statistics have a mode of their own."""
        copy, masks = statistics.train(copied(model, shares=True)), Masks()
        for layer in copy.modules():
            if isinstance(layer, _DropoutNd) and type(layer) in _MASK_SHAPES:
                layer.forward = partial(_forward, layer, masks)
        return cls(copy, masks)


def has_dropout(model: nn.Module) -> bool:
    """Whether the model draws masks while it trains."""
    return any(type(module) in _MASK_SHAPES or _draws_itself(module) for module in model.modules())


def draws_itself(model: nn.Module) -> bool:
    """Whether a layer draws numbers that it cannot be given, so that torch's generator must be seeded for it."""
    return any(map(_draws_itself, model.modules()))


def draws_unseen(problem: Problem) -> bool:
    """Whether a training pass draws from torch's generator, though no layer is known to: by functional.dropout, say."""
    inputs = problem.example.inputs[:2]
    if not len(inputs) or draws_itself(problem.model):
        return False
    copy, devices = Copy.of(problem.model, problem.statistics), [inputs.device] if inputs.is_cuda else []
    copy.masks.start(rng.fixed_key().to(inputs.device))
    with torch.random.fork_rng(devices=devices), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = _generators(devices)
        try:
            problem.outputs(copy.model, problem.z0, inputs[[0, -1]])  # two, for batch normalisation
        except Exception:  # what does not fit is told where it is used
            return False
        return not all(map(torch.equal, before, _generators(devices)))


def _generators(devices: list[torch.device]) -> list[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def _draws_itself(module: nn.Module) -> bool:
    match module:
        case nn.MultiheadAttention():
            return bool(module.dropout)
        case nn.RNNBase():
            return bool(module.dropout) and module.num_layers > 1
        case nn.RReLU() | nn.FractionalMaxPool2d() | nn.FractionalMaxPool3d():
            return True
    return isinstance(module, _DropoutNd) and type(module) not in _MASK_SHAPES


def _forward(layer: _DropoutNd, masks: Masks, x: Tensor) -> Tensor:
    """What the layer makes of x."""
    chance = Chance.of(layer.p)
    if not layer.training or chance.always:
        return x
    mask = masks.draw(chance, _MASK_SHAPES[type(layer)](tuple(x.shape)))
    if isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout) and chance.kept:
        kept = chance.kept / 2**16
        factor = 1 / sqrt((_SELU**2 * (1 - kept) + 1) * kept)  # mean 0 and variance 1 stay what they are
        return x * mask * factor + (_SELU * factor) * (mask.to(x.dtype) - kept)
    return x.mul_(mask).mul_(chance.scale) if layer.inplace else x * mask * chance.scale


def _entries(shape: Shape) -> Shape:
    return shape


def _channels(alone: int, shape: Shape) -> Shape:
    """An entry for each sample's channel; an input of `alone` dimensions is a single sample, as torch has it."""
    leading = 1 if len(shape) == alone else 2
    return *shape[:leading], *[1] * (len(shape) - leading)


_MASK_SHAPES: dict[type[nn.Module], Callable[[Shape], Shape]] = {
    nn.Dropout: _entries,
    nn.AlphaDropout: _entries,
    nn.Dropout1d: partial(_channels, 2),
    nn.Dropout2d: partial(_channels, 0),
    nn.Dropout3d: partial(_channels, 4),
    nn.FeatureAlphaDropout: partial(_channels, 0),
}
"""The layers whose masks are drawn here, and of which shape for an input of some shape."""
