"""A vector sent entry by entry."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcef.wire.payload import DENSE, HEAD, Head, Payload, encode_head
from fedcef.wire.reader import Reader
from fedcef.wire.values.registry import read_values
from fedcef.wire.values.values import Sent, as_values, rows_of


@dataclass(frozen=True, eq=False)
class Dense(Payload):
    """All entries of a vector."""

    values: Sent  # (..., p)

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The length of the vector."""
        return self.values.shape[-1]

    def dense(self) -> Tensor:
        """The values."""
        return as_values(self.values).dense()

    def nbytes(self) -> Tensor:
        """The head and the values."""
        return HEAD.size + as_values(self.values).nbytes()

    def paper_nbytes(self) -> Tensor:
        """4 bytes an entry."""
        return as_values(self.values).each(4 * self.dim)

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        return [Dense(row) for row in rows_of(self.values)]

    def encode(self) -> bytes:
        """The head and the values."""
        values = as_values(self.values)
        return encode_head(DENSE, values.code, self.dim, values.shape[:-1]) + values.encode()

    def largest(self) -> float:
        """The largest magnitude of its values: numbers, scales or levels."""
        return as_values(self.values).largest()

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Dense:
        """What follows the head."""
        return cls(read_values(reader, head.values, head.dim))
