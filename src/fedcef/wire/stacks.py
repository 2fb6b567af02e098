"""What payloads and values have in common: they hold tensors, for one vector or for a stack of them (..., k)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any, Self

import torch
from torch import Tensor


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
