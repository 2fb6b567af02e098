"""A vector sent entry by entry."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcef.wire import value_types
from fedcef.wire.payload import DENSE, HEAD, Head, Payload, decoded, encode_head, for_each_vector, read_values
from fedcef.wire.reader import Reader


@dataclass(frozen=True, eq=False)
class Dense(Payload):
    values: Tensor  # (..., p)

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        return self.values.shape[-1]

    def dense(self) -> Tensor:
        return decoded(self.values)

    def nbytes(self) -> Tensor:
        return for_each_vector(HEAD.size + self.dim * self.values.dtype.itemsize, self.values)

    def paper_nbytes(self) -> Tensor:
        return for_each_vector(4 * self.dim, self.values)

    def rows(self) -> list[Payload]:
        return [Dense(row) for row in self.values.unbind()]

    def add_to(self, total: Tensor) -> None:
        total += self.dense().to(total.dtype)

    def encode(self) -> bytes:
        return encode_head(DENSE, self.values, self.dim) + value_types.to_bytes(self.values)

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Dense:
        return cls(read_values(reader, head.values, head.dim))
