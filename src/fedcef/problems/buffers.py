"""What of a model is not trained: frozen parameters, and buffers.

Frozen parameters (requires_grad=False) and buffers that no pass changes are constants: everyone has them, nobody sends
them, and a digest tells whether all have the same.  Buffers that a training pass changes are running statistics; what
becomes of them is chosen: they stay as they are, every batch has its own, or they travel and are averaged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from fedcef.core.errors import ProblemError
from fedcef.core.layout import Layout
from fedcef.problems.copying import copied

Buffers = Literal["constant", "frozen", "local", "mean"]
"""How buffers are treated: none may change; statistics stay as they are; every batch has its own, and whoever uses the
model takes those of their inputs; or clients move them on and send them, and the server takes their mean."""
BUFFERS: tuple[Buffers, ...] = ("constant", "frozen", "local", "mean")

DIGEST = 4  # bytes: as many as a run's id has room for


@dataclass(frozen=True)
class Statistics:
    """The layers of a model with running statistics.

    Frozen ones stay in evaluation mode while the others train.  Local ones normalise by each batch as they train, which
    needs no running statistics: there is nothing to average, to send or to keep.  What a trained model is used with is
    a function of its parameters and of some inputs (`calibrate`).  Averaged ones are part of the model: as one vector,
    (q,), they are handed out with the parameters, moved on by every training pass, and sent back.
    """

    layers: tuple[str, ...] = ()
    """Those that are not left in training mode as they are."""
    local: bool = False
    averaged: Layout = Layout((), ())
    """The buffers that travel."""

    @classmethod
    def of(cls, model: nn.Module, choice: Buffers, inputs: Tensor) -> Statistics:
        """Those that a training pass on these inputs changes; refused if the choice has no place for them."""
        if choice not in BUFFERS:
            raise ProblemError(f"buffers is {choice!r}; it must be one of {', '.join(map(repr, BUFFERS))}.")
        moving = _moving(copied(model, shares=True).train(), inputs) if [*model.buffers()] else []
        if not moving:
            return cls()
        if choice == "constant":
            raise ProblemError(
                f"The model has buffers that training changes ({_some(moving)}); they would neither be averaged nor "
                "sent.  Average and send them, too, by buffers='mean', keep them as they are by buffers='frozen', "
                "leave them to whoever uses the model by buffers='local', replace batch normalisation by nn.GroupNorm "
                "(fedcef.group_norm does), or build it with track_running_stats=False."
            )
        if choice == "mean":
            return cls._averaging(model, moving, inputs)
        found = cls(tuple(dict.fromkeys(name.rpartition(".")[0] for name in moving)), choice == "local")
        others = [layer for layer in map(model.get_submodule, found.layers) if not isinstance(layer, _NormBase)]
        if found.local and others:
            raise ProblemError(
                f"buffers='local' is for batch normalisation; the buffers of {type(others[0]).__name__} can only be "
                "kept, by buffers='frozen', or averaged, by buffers='mean'."
            )
        _check_still(found.train(copied(model, shares=True)), inputs)
        return found

    @classmethod
    def _averaging(cls, model: nn.Module, moving: list[str], inputs: Tensor) -> Statistics:
        buffers = {name: model.get_buffer(name) for name in moving}
        odd = [name for name, buffer in buffers.items() if buffer.dtype == torch.bool or buffer.is_complex()]
        if odd:
            raise ProblemError(f"buffers='mean' is for numbers; {_some(odd)} can only be kept, by buffers='frozen'.")
        _check_still(copied(model, shares=True).eval(), inputs)
        return cls(averaged=Layout.of(buffers))

    def train(self, model: nn.Module) -> nn.Module:
        """The module itself, put into training mode, with these layers as they are to be while it trains."""
        model.train()
        for name in self.layers:
            layer: Any = model.get_submodule(name)
            if self.local:
                layer.track_running_stats = False
                layer.running_mean = layer.running_var = layer.num_batches_tracked = None
            else:
                layer.training = False  # not what lies within it
        return model

    @torch.no_grad()
    def calibrate(self, model: nn.Module, parameters: dict[str, Tensor], inputs: Tensor) -> None:
        """Give local layers the statistics that these inputs have with these parameters, as one batch."""
        layers: list[Any] = [model.get_submodule(name) for name in self.layers if self.local]
        usual = [(layer.momentum, layer.training) for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum, layer.training = 1.0, True
        if layers:
            functional_call(model, parameters, (inputs,))
        for layer, (momentum, training) in zip(layers, usual, strict=True):
            layer.momentum, layer.training = momentum, training

    def flat(self, buffers: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """The buffers that travel as one vector, (q,), of the type of `like`; empty if there are none."""
        parts = [buffers[name].detach().reshape(-1).to(like) for name in self.averaged.names]
        return torch.cat(parts) if parts else like.new_empty(0)

    def tensors(self, model: nn.Module, vector: Tensor) -> dict[str, Tensor]:
        """Those of a vector by name, in memory of their own and of the types that they have in the model."""
        return {
            name: (part if model.get_buffer(name).is_floating_point() else part.round()).to(
                model.get_buffer(name).dtype, copy=True
            )
            for name, part in self.averaged.unflatten(vector).items()
        }

    def put(self, model: nn.Module, vector: Tensor) -> None:
        """Give the model those of a vector."""
        for name, tensor in self.tensors(model, vector).items():
            model.get_buffer(name).copy_(tensor)

    def reads_back(self, model: nn.Module) -> bool:
        """Whether a pass reads how many batches there were: batch normalisation that weighs all of them alike."""
        owners = [model.get_submodule(name.rpartition(".")[0]) for name in self.averaged.names]
        return any(isinstance(layer, _NormBase) and layer.momentum is None for layer in owners)

    def constants(self, model: nn.Module) -> dict[str, Tensor]:
        """What of a model everyone must have alike."""
        layers = [model.get_submodule(name) for name in self.layers if self.local]
        own = {id(buffer) for layer in layers for buffer in layer.buffers(recurse=False)}  # under whatever names
        own |= {id(model.get_buffer(name)) for name in self.averaged.names}
        return {name: kept for name, kept in untrained(model).items() if id(kept) not in own}


def untrained(model: nn.Module) -> dict[str, Tensor]:
    """Frozen parameters and buffers by name, as a `state_dict` has them: tied ones under each of their names."""
    frozen = {n: p.detach() for n, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    saved = model.state_dict().keys()
    return frozen | {n: b for n, b in model.named_buffers(remove_duplicate=False) if n in saved}


def digest(tensors: dict[str, Tensor]) -> bytes:
    """Tells apart constants that differ in a name or in a single bit; without any, nothing."""
    state = hashlib.blake2b(digest_size=DIGEST)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        state.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return state.digest() if tensors else b""


def group_norm(model: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of a model with group in place of batch normalisation, which has no statistics to average or to send.

    Scales and shifts are kept, trained or frozen as they were.  A layer gets at most `groups` groups, and as many as
    leave at least two channels in each: the most that divide its channels.

    >>> problem = Problem.build(group_norm(torchvision.models.resnet18(num_classes=10)), loss, clients)
    """
    if groups < 1:
        raise ProblemError(f"groups is {groups}; it must be 1 or more.")
    made: dict[int, nn.Module] = {}
    root = nn.ModuleDict({"model": copied(model)})
    for parent in list(root.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
                setattr(parent, name, made.setdefault(id(child), _grouped(child, groups)))
    return root["model"]


def _grouped(layer: _BatchNorm, groups: int) -> nn.GroupNorm:
    channels = layer.num_features
    count = max(n for n in range(1, channels + 1) if channels % n == 0 and n <= max(1, min(groups, channels // 2)))
    made = nn.GroupNorm(count, channels, layer.eps, layer.affine).train(layer.training)
    if layer.affine:
        made.weight, made.bias = layer.weight, layer.bias
    return made


def _moving(model: nn.Module, inputs: Tensor) -> list[str]:
    """The buffers that a training pass changes; those of torch's own layers are known without one."""
    known = [
        name for name, layer in model.named_modules() if isinstance(layer, _NormBase) and layer.track_running_stats
    ]
    changed = set(_changed(model, inputs))
    return [name for name, _ in model.named_buffers() if name in changed or name.rpartition(".")[0] in known]


def _changed(model: nn.Module, inputs: Tensor) -> list[str]:
    """The buffers that a pass changes, or none if it fails: what does not fit is told when the problem is tried out."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
            model(inputs)
    except Exception:  # whatever the user's module says to these inputs
        return []
    after = dict(model.named_buffers())
    return [name for name in after if name not in before or not _same(after[name], before[name])]


def _check_still(model: nn.Module, inputs: Tensor) -> None:
    if moving := _changed(model, inputs):
        raise ProblemError(
            f"The model changes buffers in evaluation mode, too ({_some(moving)}); make them no buffers, or leave "
            "them as they are."
        )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{', …' if names[3:] else ''}"
