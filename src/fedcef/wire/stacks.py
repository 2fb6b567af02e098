"""What payloads and values have in common: they hold tensors, for one vector or for a stack of them (..., k)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any, Self

import torch
from torch import Tensor

AT_ONCE = 2**18
"""Entries of a stack that are measured at once."""

AT_ONCE_ON_A_GPU = 2**26
"""The same on a GPU, which has no use for small pieces."""


class TensorTree:
    """A dataclass whose fields are tensors, trees of them, tuples of such, or plain numbers."""

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The same thing with every tensor replaced by the function's result for it."""
        changed = {f.name: _mapped(getattr(self, f.name), function) for f in fields(self)}  # type: ignore[arg-type]
        return replace(self, **changed)  # type: ignore[type-var]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same thing with its tensors on another device."""
        return self.map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))


def for_each_vector(size: int, stack: Tensor) -> Tensor:
    """The same size for all vectors of a stack (..., k): int64 (...)."""
    return torch.full(stack.shape[:-1], size, dtype=torch.int64, device=stack.device)


def in_pieces(compute: Callable[..., Iterable[Tensor]], *stacks: Tensor) -> list[Tensor]:
    """compute(*stacks), (..., *) each, for some vectors of the stacks (..., k), (..., *) at a time.

    So what is computed on the way takes bounded memory, and on a CPU stays in its caches.
    """
    lead, size = stacks[0].shape[:-1], stacks[0].shape[-1]
    rows = max(1, (AT_ONCE if stacks[0].device.type == "cpu" else AT_ONCE_ON_A_GPU) // max(1, size))
    if lead.numel() <= rows:
        return list(compute(*stacks))
    split = [torch.split(stack.flatten(0, len(lead) - 1), rows) for stack in stacks]
    pieces = [compute(*some) for some in zip(*split, strict=True)]
    return [torch.cat(results).unflatten(0, lead) for results in zip(*pieces, strict=True)]  # type: ignore[no-untyped-call]


def sum_in_order(vectors: Iterable[Tensor]) -> Tensor:
    """The sum of vectors (p,), added up one after the other: torch's own sums have an order of their own."""
    each = iter(vectors)
    total = next(each) + 0.0  # as if to zeros: a negative zero does not stay one
    for vector in each:
        total += vector
    return total


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, TensorTree):
        return value.map_tensors(function)
    if isinstance(value, tuple):
        return tuple(_mapped(item, function) for item in value)
    return value
