"""A vector sent as some of its entries and their indices."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.wire.codes.indices import encode_indices, gaps_of, plan, read_indices
from fedcef.wire.context import Context
from fedcef.wire.payload import (
    COUNT,
    HEAD,
    SPARSE,
    SPARSE_IN_CONTEXT,
    Head,
    Payload,
    encode_count,
    encode_head,
    read_count,
)
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.stacks import for_each_vector
from fedcef.wire.values.registry import read_values
from fedcef.wire.values.values import Sent, as_values, rows_of

CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True, eq=False)
class Sparse(Payload):
    """Values and their indices."""

    values: Sent  # (..., k)
    indices: Tensor  # (..., k) int64, strictly ascending
    dim: int

    def dense(self) -> Tensor:
        """The values at their indices, 0 elsewhere."""
        values = as_values(self.values).dense()
        return values.new_zeros((*values.shape[:-1], self.dim)).scatter(-1, self.indices, values)

    def nbytes(self) -> Tensor:
        """The head, count, values and coded indices."""
        return self.nbytes_given(None)

    def nbytes_given(self, context: Context | None) -> Tensor:
        """With a checksum of the context, and indices coded with it; or as without, if that is less."""
        values, count = as_values(self.values).nbytes(), for_each_vector(self.indices.shape[-1], self.indices)
        plain = sparse_nbytes(values, gaps_of(self.indices), count, self.dim)
        if context is None:
            return plain
        ranks = self._as_seen_by(context).indices
        return torch.minimum(plain, CHECKSUM.size + sparse_nbytes(values, gaps_of(ranks), count, self.dim))

    def paper_nbytes(self) -> Tensor:
        """8 bytes a value with its index."""
        return for_each_vector(8 * self.indices.shape[-1], self.indices)

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        pairs = zip(rows_of(self.values), self.indices.unbind(), strict=True)
        return [Sparse(values, indices, self.dim) for values, indices in pairs]

    def add_to(self, total: Tensor) -> None:
        """Adds the values at their indices; other entries are not touched."""
        total.index_add_(0, self.indices, as_values(self.values).dense().to(total.dtype))

    def total(self) -> Tensor:
        """On a CPU in one pass, which adds one entry after the other; on a GPU those that meet would race."""
        values = as_values(self.values).dense()
        total = values.new_zeros(self.dim)
        if values.device.type == "cpu":
            return total.index_add_(0, self.indices.flatten(), values.flatten())
        for indices, own in zip(self.indices.unbind(), values.unbind(), strict=True):
            total.index_add_(0, indices, own)
        return total

    def encode(self) -> bytes:
        """The head, count, values and coded indices."""
        values = as_values(self.values)
        head = encode_head(SPARSE, values.code, self.dim, values.shape[:-1])
        if values.shape != self.indices.shape:
            raise WireError(f"{values.shape[-1]} values and {len(self.indices)} indices do not make a sparse vector.")
        count = encode_count(values.shape[-1], self.dim)
        return head + count + values.encode() + encode_indices(self.indices, self.dim)

    def encode_given(self, context: Context | None) -> bytes:
        """With a checksum of the context, and indices coded with it; or as without, if that is less."""
        plain = self.encode()  # also says what is wrong
        if context is None:
            return plain
        head = encode_head(SPARSE_IN_CONTEXT, as_values(self.values).code, self.dim, self.indices.shape[:-1])
        rest = self._as_seen_by(context).encode()[HEAD.size :]
        return min(plain, head + CHECKSUM.pack(context.checksum) + rest, key=len)

    def _as_seen_by(self, context: Context) -> Sparse:
        """What is written down: ranks for indices; the values stay in the order of the indices."""
        context.require_dim(self.dim)
        return Sparse(self.values, context.ranks(self.indices), self.dim)

    def largest(self) -> float:
        """The largest magnitude of its values: numbers, scales or levels."""
        return as_values(self.values).largest()

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Sparse:
        """What follows the head."""
        count = read_count(reader, head.dim)
        values = read_values(reader, head.values, count)
        return cls(values, read_indices(reader, count, head.dim), head.dim)

    @classmethod
    def read_given(cls, reader: Reader, head: Head, context: Context | None) -> Sparse:
        """What follows the head of a vector that is coded with a context."""
        if context is None:
            raise WireError(
                "The vector is coded with a context, and none was given; decode it with that of the sender."
            )
        context.require_dim(head.dim)
        (checksum,) = reader.unpack(CHECKSUM, "the checksum of a context")
        if checksum != context.checksum:
            raise WireError(
                "The vector is coded with a context other than the one given; sender and receiver must have the same."
            )
        seen = cls.read(reader, head)
        return cls(seen.values, context.indices(seen.indices), head.dim)


def sparse_nbytes(values: Tensor, gaps: Tensor, count: Tensor, dim: int) -> Tensor:
    """The size of a sparse payload from that of its values, (...), and the gaps of its indices, as for `plan`."""
    return HEAD.size + COUNT.size + values + plan(gaps, count, dim).nbytes
