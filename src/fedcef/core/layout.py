"""The layout of a flat vector: which stretch of it is which named tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the tensors of a model, in the order in which they are laid out."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Layout:
        """The layout of named tensors, in their order."""
        return cls(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many entries each tensor has."""
        return tuple(prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """p, the length of the flat vector."""
        return sum(self.sizes)

    def segments(self) -> Iterator[tuple[str, slice, tuple[int, ...]]]:
        """Each tensor's name, its stretch of the flat vector, and its shape."""
        start = 0
        for name, shape, size in zip(self.names, self.shapes, self.sizes, strict=True):
            yield name, slice(start, start + size), shape
            start += size

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Named tensors to one vector (p,)."""
        return torch.cat([tensors[name].reshape(-1) for name in self.names])

    def unflatten(self, x: Tensor) -> dict[str, Tensor]:
        """A vector (..., p) to named views (..., *shape) of it."""
        parts = torch.split(x, list(self.sizes), dim=-1)
        return {
            name: part.reshape(x.shape[:-1] + shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def mask(self, patterns: list[str]) -> Tensor:
        """Which entries belong to a parameter whose name matches one of the shell-style patterns: (p,) bool."""
        mask = torch.zeros(self.size, dtype=torch.bool)
        for name, stretch, _ in self.segments():
            mask[stretch] = any(fnmatchcase(name, pattern) for pattern in patterns)
        return mask
