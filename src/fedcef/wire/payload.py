"""What a vector is on the wire: the interface of all payloads, and the fields that they begin with."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedcef.wire.context import Context
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.stacks import TensorTree, sum_in_order
from fedcef.wire.values.values import largest_of

MAX_DIM = 2**32 - 1
"""The largest dimension that the format can write down."""

DENSE, SPARSE, SEEDED, ROTATED, LOW_RANK, RELAY, SPARSE_IN_CONTEXT = range(1, 8)
"""The numbers of the forms; those from 192 on are for other packages (extensions.py)."""

MODERATE = 2.0**40
"""Numbers that a decoder multiplies or adds up stay below it in magnitude, so that what it decodes is finite."""

AT_ONCE = 2**22
"""Entries of a stack that are decoded at once; a larger one is decoded vector by vector, which bounds the memory."""

HEAD = struct.Struct("<BBI")  # form, value type, dim
COUNT = struct.Struct("<I")


class Payload(TensorTree, ABC):
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

    def add_to(self, total: Tensor) -> None:
        """Add the decoded value of a single payload to `total`, (dim,), in place."""
        total += self.dense().to(total.dtype)

    @property
    def lead(self) -> torch.Size:
        """The leading axes of a stack; none for a single payload."""
        return self.paper_nbytes().shape

    def total(self) -> Tensor:
        """The sum of the decoded vectors of a stack (N,), added up in their order, (dim,)."""
        if self.lead.numel() * self.dim > AT_ONCE:
            return sum_in_order(row.dense() for row in self.rows())
        return sum_in_order(self.dense())

    def added(self, others: Sequence[Payload]) -> Tensor | None:
        """The sum of single payloads, this one among them, by a way of their own; None: their vectors are added up."""
        return None

    @property
    def relayable(self) -> bool:
        """Whether a server may pass on what its clients sent (`Relay`)."""
        return True

    @abstractmethod
    def encode(self) -> bytes:
        """The bytes of a single payload; as many as `nbytes` says."""

    def nbytes_given(self, context: Context | None) -> Tensor:
        """The exact size for receivers that know the context too; it may be one for all vectors or one for each."""
        return self.nbytes()

    def measured(self, context: Context | None) -> Tensor:
        """`nbytes_given`, computed once: a cohort's messages are measured on their way up, and down in a relay.

        That holds on a CPU.  On a GPU a payload may belong to a recording, which gives its tensors new values.
        """
        known: dict[Context | None, Tensor] = self.__dict__.setdefault("_measured", {})
        if context in known:
            return known[context]
        sizes = self.nbytes_given(context)
        if sizes.device.type == "cpu":
            known[context] = sizes
        return sizes

    def encode_given(self, context: Context | None) -> bytes:
        """The bytes for a receiver that knows the context too; as many as `nbytes_given` says."""
        return self.encode()

    def largest(self) -> float:
        """The largest magnitude among the numbers that a single payload's bytes carry, read back."""
        return largest_of(self.dense())


class Head(NamedTuple):
    """The first fields of every payload."""

    form: int
    values: int  # the number of the values' type
    dim: int


def encode_head(form: int, values: int, dim: int, lead: torch.Size) -> bytes:
    """The first fields of a payload with values of type number `values`; it must have no leading axes."""
    if lead:
        raise WireError(
            f"A stack of vectors with leading axes {tuple(lead)} cannot be encoded as one; take it apart with rows()."
        )
    if dim > MAX_DIM:
        raise WireError(f"A vector of dimension {dim} cannot be sent; the largest is {MAX_DIM}.")
    return HEAD.pack(form, values, dim)


def read_head(reader: Reader, max_dim: int) -> Head:
    """The next head, of a dimension up to `max_dim`."""
    form, values, dim = reader.unpack(HEAD, "the head of a payload")
    if dim > max_dim:
        raise WireError(f"A vector of dimension {dim} is too large; at most {max_dim} is accepted here.")
    return Head(form, values, dim)


def encode_count(count: int, dim: int) -> bytes:
    """How many entries are sent of a vector of this dimension."""
    _require_at_most_dim(count, dim)
    return COUNT.pack(count)


def read_count(reader: Reader, dim: int) -> int:
    """The next count of entries, at most the dimension."""
    count: int = reader.unpack(COUNT, "the entry count")[0]
    _require_at_most_dim(count, dim)
    return count


def _require_at_most_dim(count: int, dim: int) -> None:
    if count > dim:
        raise WireError(f"{count} entries cannot be kept of a vector of dimension {dim}.")
