"""Several inputs of one sample, such as tokens and a mask, in one table of bytes.

Whatever stores, draws, moves or splits samples knows one table of inputs.  Inputs of several types and shapes are
therefore laid side by side, byte for byte, and a hook in front of the model takes them apart: model(*inputs), or
model(**inputs) where they have names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fedcef.core.errors import ProblemError

_ALIGNMENT = 8  # bytes: a part begins where any type may


@dataclass(frozen=True)
class Packing:
    """How the inputs of a sample lie beside each other."""

    names: tuple[str, ...]
    """What they are called; nothing where they go by their order."""
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, parts: Mapping[str, Tensor] | Sequence[Tensor]) -> Packing:
        """As these inputs of equally many samples are."""
        tensors = _listed(parts)
        names = tuple(parts) if isinstance(parts, Mapping) else ()
        return cls(names, tuple(t.dtype for t in tensors), tuple(tuple(t.shape[1:]) for t in tensors))

    def pack(self, parts: Mapping[str, Tensor] | Sequence[Tensor]) -> Tensor:
        """The inputs of n samples as bytes, (n, width)."""
        rows = [t.contiguous().reshape(len(t), -1).view(torch.uint8) for t in _listed(parts)]
        return torch.cat([pad(row, (0, -row.shape[1] % _ALIGNMENT)) for row in rows], 1)

    def unpack(self, packed: Tensor, floating: torch.dtype | None = None) -> list[Tensor]:
        """The inputs again, (…, *shape) each; those that are floating-point numbers in the given type."""
        parts = []
        for start, size, dtype, shape in zip(self._starts, self._sizes, self.dtypes, self.shapes, strict=False):
            values = packed[..., start : start + size].view(dtype).reshape(*packed.shape[:-1], *shape)
            parts.append(values.to(floating) if floating is not None and dtype.is_floating_point else values)
        return parts

    @property
    def width(self) -> int:
        """How many bytes a sample takes."""
        return self._starts[-1]

    @property
    def _sizes(self) -> list[int]:
        return [prod(shape) * dtype.itemsize for shape, dtype in zip(self.shapes, self.dtypes, strict=True)]

    @property
    def _starts(self) -> list[int]:
        return list(accumulate((size + -size % _ALIGNMENT for size in self._sizes), initial=0))

    def __str__(self) -> str:
        kinds = [
            f"{tuple(shape)} {str(dtype).removeprefix('torch.')}"
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]
        named = [f"{name} {kind}" for name, kind in zip(self.names, kinds, strict=True)] if self.names else kinds
        return ", ".join(named)


@dataclass(frozen=True)
class Unpacking:
    """The hook: a single table of bytes is taken apart, and anything else goes to the model as it is."""

    packing: Packing
    trained: str
    """The name of a parameter that is trained: inputs have its type, and frozen ones may have another."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        packing = self.packing
        if len(args) != 1 or named or not isinstance(args[0], Tensor):
            return None
        if args[0].dtype != torch.uint8 or args[0].shape[-1] != packing.width:
            return None
        parts = packing.unpack(args[0], next(p for n, p in module.named_parameters() if n == self.trained).dtype)
        return ((), dict(zip(packing.names, parts, strict=True))) if packing.names else (tuple(parts), {})


def with_unpacking(model: nn.Module, packing: Packing | None) -> nn.Module:
    """The model, which takes packed inputs, too, beside those that it took before."""
    if packing is None:
        return model
    trained = next(name for name, parameter in model.named_parameters() if parameter.requires_grad)
    model.register_forward_pre_hook(Unpacking(packing, trained), with_kwargs=True)
    return model


class PadTo:
    """Makes sequences equally long: a function for `Problem.build(…, collate=…)`."""

    def __init__(self, length: int, value: float = 0, mask: bool = True) -> None:
        self.length, self.value, self.mask = length, value, mask

    def __call__(self, samples: Sequence[tuple[Any, Any]]) -> tuple[Any, list[Any]]:
        """Inputs (n, length, …), and where they are no padding, (n, length); and the targets as they are."""
        rows = [torch.as_tensor(sample[0])[: self.length] for sample in samples]
        padded = torch.stack(
            [pad(row, (0, 0) * (row.ndim - 1) + (0, self.length - len(row)), value=self.value) for row in rows]
        )
        there = torch.tensor([len(row) for row in rows]).unsqueeze(1) > torch.arange(self.length)
        return ((padded, there) if self.mask else padded), [sample[1] for sample in samples]


def pad_to(length: int, value: float = 0, mask: bool = True) -> PadTo:
    """What makes sequences equally long, for `Problem.build(…, collate=pad_to(80))`: model(padded, mask) is called.

    Args:
        length: Of all sequences; longer ones are cut.
        value: What is filled in behind shorter ones.
        mask: Whether the model gets a second input, (batch, length), which is true where there is no padding.

    >>> (padded, mask), targets = pad_to(3)([(torch.tensor([5]), 0), (torch.tensor([6, 7]), 1)])
    >>> padded.tolist(), mask.tolist()
    ([[5, 0, 0], [6, 7, 0]], [[True, False, False], [True, True, False]])
    """
    if length < 1:
        raise ProblemError(f"Sequences are made {length} long; it must be 1 or more.")
    return PadTo(length, value, mask)


def _listed(parts: Mapping[str, Tensor] | Sequence[Tensor]) -> list[Tensor]:
    return list(parts.values()) if isinstance(parts, Mapping) else list(parts)
