"""What a vector is on the wire: the interface of all payloads, and the fields that they begin with."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from fedcef.wire import value_types
from fedcef.wire.errors import WireError
from fedcef.wire.reader import Reader
from fedcef.wire.value_types import ValueType

MAX_DIM = 2**32 - 1
"""The largest dimension that the format can write down."""

DENSE, SPARSE, SEEDED = range(1, 4)
"""The forms of a vector on the wire."""

HEAD = struct.Struct("<BBI")  # form, value type, dim
COUNT = struct.Struct("<I")


class Payload(ABC):
    """One vector of a message, or a stack of them over leading axes (clients), in the form in which it is sent."""

    dim: int

    @abstractmethod
    def dense(self) -> Tensor:
        """The decoded value, (..., dim); half-precision values come back as float32."""

    @abstractmethod
    def nbytes(self) -> Tensor:
        """The exact encoded size of each vector, int64 (...): tensor operations only, nothing is read back."""

    @abstractmethod
    def paper_nbytes(self) -> Tensor:
        """The size by the paper's rule, int64 (...): 4 bytes for a dense entry, 8 for a kept one."""

    @abstractmethod
    def rows(self) -> list[Payload]:
        """A stack (N, ...) taken apart along its first axis."""

    @abstractmethod
    def add_to(self, total: Tensor) -> None:
        """Add the decoded value of a single payload to `total`, (dim,), in place."""

    @abstractmethod
    def encode(self) -> bytes:
        """The bytes of a single payload; as many as `nbytes` says."""

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same payload with its tensors on another device."""
        there = {
            f.name: value.to(device, non_blocking=non_blocking)
            for f in fields(self)  # type: ignore[arg-type]  # every payload is a dataclass
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **there)  # type: ignore[type-var]


class Head(NamedTuple):
    """The first fields of every payload."""

    form: int
    values: ValueType
    dim: int


def encode_head(form: int, values: Tensor, dim: int) -> bytes:
    if values.ndim != 1:
        raise WireError(
            f"A stack of vectors with leading axes {tuple(values.shape[:-1])} cannot be encoded as one; "
            "take it apart with rows()."
        )
    if dim > MAX_DIM:
        raise WireError(f"A vector of dimension {dim} cannot be sent; the largest is {MAX_DIM}.")
    return HEAD.pack(form, value_types.of_tensor(values).code, dim)


def read_head(reader: Reader, max_dim: int) -> Head:
    form, code, dim = reader.unpack(HEAD, "the head of a payload")
    values = value_types.of_code(code)
    if dim > max_dim:
        raise WireError(f"A vector of dimension {dim} is too large; at most {max_dim} is accepted here.")
    return Head(form, values, dim)


def encode_count(count: int, dim: int) -> bytes:
    _require_at_most_dim(count, dim)
    return COUNT.pack(count)


def read_count(reader: Reader, dim: int) -> int:
    count: int = reader.unpack(COUNT, "the entry count")[0]
    _require_at_most_dim(count, dim)
    return count


def read_values(reader: Reader, kind: ValueType, count: int) -> Tensor:
    """`count` values -> (count,)."""
    return value_types.from_bytes(reader.take(count * kind.dtype.itemsize, f"{count} {kind.name} values"), kind)


def decoded(values: Tensor) -> Tensor:
    """Values in a type to compute with."""
    return values.float() if values.dtype.itemsize == 2 else values


def for_each_vector(size: int, stack: Tensor) -> Tensor:
    """The same size for all vectors of a stack (..., k): int64 (...)."""
    return torch.full(stack.shape[:-1], size, dtype=torch.int64, device=stack.device)


def _require_at_most_dim(count: int, dim: int) -> None:
    if count > dim:
        raise WireError(f"{count} entries cannot be kept of a vector of dimension {dim}.")
