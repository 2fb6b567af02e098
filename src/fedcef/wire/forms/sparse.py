"""A vector sent as some of its entries and their indices."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcef.wire.codes.indices import encode_indices, gaps_of, plan, read_indices
from fedcef.wire.payload import COUNT, HEAD, SPARSE, Head, Payload, encode_count, encode_head, read_count
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.stacks import for_each_vector
from fedcef.wire.values.registry import read_values
from fedcef.wire.values.values import Sent, as_values, rows_of


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
        count = for_each_vector(self.indices.shape[-1], self.indices)
        return sparse_nbytes(as_values(self.values).nbytes(), gaps_of(self.indices), count, self.dim)

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

    def encode(self) -> bytes:
        """The head, count, values and coded indices."""
        values = as_values(self.values)
        head = encode_head(SPARSE, values.code, self.dim, values.shape[:-1])
        if values.shape != self.indices.shape:
            raise WireError(f"{values.shape[-1]} values and {len(self.indices)} indices do not make a sparse vector.")
        count = encode_count(values.shape[-1], self.dim)
        return head + count + values.encode() + encode_indices(self.indices, self.dim)

    def largest(self) -> float:
        """The largest magnitude of its values: numbers, scales or levels."""
        return as_values(self.values).largest()

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Sparse:
        """What follows the head."""
        count = read_count(reader, head.dim)
        values = read_values(reader, head.values, count)
        return cls(values, read_indices(reader, count, head.dim), head.dim)


def sparse_nbytes(values: Tensor, gaps: Tensor, count: Tensor, dim: int) -> Tensor:
    """The size of a sparse payload from that of its values, (...), and the gaps of its indices, as for `plan`."""
    return HEAD.size + COUNT.size + values + plan(gaps, count, dim).nbytes
