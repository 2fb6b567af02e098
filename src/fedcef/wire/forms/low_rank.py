"""A vector whose matrices are sent as products of thin ones, and whose other stretches are sent as they are."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.wire.payload import HEAD, LOW_RANK, MODERATE, Head, Payload, encode_head
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.stacks import for_each_vector
from fedcef.wire.values.number_formats import VALUE_TYPES, from_bytes, to_bytes
from fedcef.wire.values.values import largest_of, require_below

Shape: TypeAlias = tuple[int, int] | int
"""A matrix (n, m) that is given by factors, or the length of a plain stretch."""

MAX_RANK = 255
MANY = 1024
"""Shapes that are gone through one by one; more are a sign of tiny ones, for which that takes too long."""
_FLOAT32 = VALUE_TYPES["float32"]
_FIELDS = struct.Struct("<BI")  # rank, number of shapes
_SHAPE = struct.Struct("<II")  # n, m; m = 0 for a plain stretch of n


@dataclass(frozen=True, eq=False)
class LowRank(Payload):
    """For each shape in turn, Σ_r left[:, r] right[:, r]ᵀ row by row, or a stretch of `rest`."""

    left: Tensor  # (..., L) float32, for each matrix in turn n × rank, row by row
    right: Tensor  # (..., R) float32, for each matrix in turn m × rank, row by row
    rest: Tensor  # (..., V) float32
    shapes: tuple[Shape, ...]
    rank: int

    @cached_property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The sum of the shapes' sizes."""
        return sum(shape if isinstance(shape, int) else shape[0] * shape[1] for shape in self.shapes)

    def dense(self) -> Tensor:
        """The products of the factors and the plain stretches, in the order of the shapes."""
        if len(self.shapes) > MANY:
            return self._dense_entry_by_entry()
        left, right, rest = 0, 0, 0
        pieces = [self.rest[..., :0]]
        for shape in self.shapes:
            if isinstance(shape, int):
                pieces.append(self.rest[..., rest : rest + shape])
                rest += shape
                continue
            n, m = (size * self.rank for size in shape)
            pieces.append(self._product(self.left[..., left : left + n], self.right[..., right : right + m]))
            left, right = left + n, right + m
        return torch.cat(pieces, dim=-1)

    def nbytes(self) -> Tensor:
        """The head, the shapes and 4 bytes a number."""
        numbers = self.left.shape[-1] + self.right.shape[-1] + self.rest.shape[-1]
        return for_each_vector(HEAD.size + _FIELDS.size + _SHAPE.size * len(self.shapes) + 4 * numbers, self.left)

    def paper_nbytes(self) -> Tensor:
        """4 bytes a number."""
        return for_each_vector(4 * (self.left.shape[-1] + self.right.shape[-1] + self.rest.shape[-1]), self.left)

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        parts = zip(self.left.unbind(), self.right.unbind(), self.rest.unbind(), strict=True)
        return [LowRank(*part, self.shapes, self.rank) for part in parts]

    def encode(self) -> bytes:
        """The head, the shapes and the numbers."""
        head = encode_head(LOW_RANK, _FLOAT32.code, self.dim, self.left.shape[:-1])
        _require_rank(self.rank)
        shapes = [(shape, 0) if isinstance(shape, int) else shape for shape in self.shapes]
        if any(isinstance(shape, tuple) and min(shape) < 1 for shape in self.shapes):
            raise WireError("A matrix without rows or columns cannot be sent by its factors.")
        parts = (self.left, self.right, self.rest)
        n, m = np.array(shapes, dtype=np.uint64).reshape(-1, 2).T
        lengths = _lengths(n, m, self.rank)
        if [tuple(part.shape) for part in parts] != [(length,) for length in lengths]:
            raise WireError(
                f"The factors and the rest have {[len(part) for part in parts]} entries; {lengths} are needed."
            )
        if any(part.dtype != torch.float32 for part in parts):
            raise WireError("The factors of a low-rank vector and the rest of it must be float32.")
        require_below(MODERATE, max(largest_of(self.left), largest_of(self.right)), "Factors")
        fields = _FIELDS.pack(self.rank, len(shapes)) + b"".join(_SHAPE.pack(*shape) for shape in shapes)
        return head + fields + b"".join(to_bytes(part) for part in parts)

    def largest(self) -> float:
        """The largest magnitude of factors and plain entries."""
        return max(largest_of(part) for part in (self.left, self.right, self.rest))

    @classmethod
    def read(cls, reader: Reader, head: Head) -> LowRank:
        """What follows the head; no product is computed."""
        if head.values != _FLOAT32.code:
            raise WireError(f"A low-rank vector has values of type {head.values}; only 1 (float32) is allowed.")
        rank, count = reader.unpack(_FIELDS, "the rank and the number of shapes")
        _require_rank(rank)
        fields = np.frombuffer(reader.take(_SHAPE.size * count, f"{count} shapes"), "<u4").astype(np.uint64)
        n, m = fields.reshape(-1, 2).T
        if ((n == 0) & (m > 0)).any():
            raise WireError("A matrix without rows cannot be sent by its factors.")
        sizes = n * np.maximum(m, 1)  # below 2^64; and so is their sum, if none is larger than the dimension
        if int(sizes.max(initial=0)) > head.dim or int(sizes.sum()) != head.dim:
            size = sum(sizes.tolist())
            raise WireError(f"The shapes of a low-rank vector have {size} entries; its dimension is {head.dim}.")
        left, right, rest = (
            from_bytes(reader.take(4 * length, f"{length} numbers of a low-rank vector"), _FLOAT32)
            for length in _lengths(n, m, rank)
        )
        require_below(MODERATE, max(largest_of(left), largest_of(right)), "Factors")
        shapes = tuple(
            (rows, columns) if columns else rows for rows, columns in zip(n.tolist(), m.tolist(), strict=True)
        )
        return cls(left, right, rest, shapes, rank)

    def _dense_entry_by_entry(self) -> Tensor:
        """The same with every entry's factors looked up: the time goes with the entries, not with the shapes."""
        n, m = np.array([(shape, 0) if isinstance(shape, int) else shape for shape in self.shapes]).T
        sizes = n * np.maximum(m, 1)
        shape = np.repeat(np.arange(len(n)), sizes)
        place = np.arange(self.dim) - (np.cumsum(sizes) - sizes)[shape]
        in_matrix = m[shape] > 0
        shape, place = shape[in_matrix], place[in_matrix]
        rows = (np.cumsum(n * (m > 0)) - n)[shape] + place // m[shape]
        columns = (np.cumsum(m) - m)[shape] + place % m[shape]
        left = self.left.reshape(*self.left.shape[:-1], -1, self.rank)
        right = self.right.reshape(*self.right.shape[:-1], -1, self.rank)
        total = left[..., rows, 0] * right[..., columns, 0]
        for r in range(1, self.rank):
            total = total + left[..., rows, r] * right[..., columns, r]
        vector = total.new_empty((*total.shape[:-1], self.dim))
        vector[..., in_matrix], vector[..., ~in_matrix] = total, self.rest
        return vector

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        """(..., n · rank), (..., m · rank) -> (..., n · m), by products and then sums in the order of ranks."""
        rows = left.reshape(*left.shape[:-1], -1, 1, self.rank)
        columns = right.reshape(*right.shape[:-1], 1, -1, self.rank)
        total = rows[..., 0] * columns[..., 0]
        for r in range(1, self.rank):
            total = total + rows[..., r] * columns[..., r]
        return total.flatten(-2)


def _lengths(n: NDArray[np.uint64], m: NDArray[np.uint64], rank: int) -> list[int]:
    """Those of left, right and rest, for shapes as they are written down."""
    return [rank * int(n[m > 0].sum()), rank * int(m.sum()), int(n[m == 0].sum())]


def _require_rank(rank: int) -> None:
    if not 1 <= rank <= MAX_RANK:
        raise WireError(f"Rank {rank} cannot be sent; ranks are 1 to {MAX_RANK}.")
