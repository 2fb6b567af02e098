"""A vector sent as some of its entries and their indices."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcef.wire import value_types
from fedcef.wire.errors import WireError
from fedcef.wire.indices import encode_indices, gaps_of, plan, read_indices
from fedcef.wire.payload import (
    COUNT,
    HEAD,
    SPARSE,
    Head,
    Payload,
    decoded,
    encode_count,
    encode_head,
    for_each_vector,
    read_count,
    read_values,
)
from fedcef.wire.reader import Reader


@dataclass(frozen=True, eq=False)
class Sparse(Payload):
    values: Tensor  # (..., k)
    indices: Tensor  # (..., k) int64, strictly ascending
    dim: int

    def dense(self) -> Tensor:
        values = decoded(self.values)
        return values.new_zeros((*values.shape[:-1], self.dim)).scatter(-1, self.indices, values)

    def nbytes(self) -> Tensor:
        count = for_each_vector(self.indices.shape[-1], self.indices)
        return sparse_nbytes(gaps_of(self.indices), count, self.dim, self.values.dtype.itemsize)

    def paper_nbytes(self) -> Tensor:
        return for_each_vector(8 * self.values.shape[-1], self.values)

    def rows(self) -> list[Payload]:
        pairs = zip(self.values.unbind(), self.indices.unbind(), strict=True)
        return [Sparse(values, indices, self.dim) for values, indices in pairs]

    def add_to(self, total: Tensor) -> None:
        total.index_add_(0, self.indices, decoded(self.values).to(total.dtype))

    def encode(self) -> bytes:
        head = encode_head(SPARSE, self.values, self.dim)
        if self.values.shape != self.indices.shape:
            raise WireError(f"{len(self.values)} values and {len(self.indices)} indices do not make a sparse vector.")
        count = encode_count(len(self.values), self.dim)
        return head + count + value_types.to_bytes(self.values) + encode_indices(self.indices, self.dim)

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Sparse:
        count = read_count(reader, head.dim)
        values = read_values(reader, head.values, count)
        return cls(values, read_indices(reader, count, head.dim), head.dim)


def sparse_nbytes(gaps: Tensor, count: Tensor, dim: int, itemsize: int) -> Tensor:
    """The size of a sparse payload from the gaps of its indices; shapes as in `plan`."""
    return HEAD.size + COUNT.size + count * itemsize + plan(gaps, count, dim).nbytes
