"""A vector sent as some of its entries, at indices that both sides draw from the same key."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.wire.payload import COUNT, HEAD, SEEDED, Head, Payload, encode_count, encode_head, read_count
from fedcef.wire.reader import Reader
from fedcef.wire.stacks import sum_in_order
from fedcef.wire.values.registry import read_values
from fedcef.wire.values.values import Sent, as_values, rows_of

_KEY = struct.Struct("<q")


@dataclass(frozen=True, eq=False)
class Seeded(Payload):
    """Values, and the key that says where they are."""

    values: Sent  # (..., k), at the indices rng.subset(key, dim, k)
    key: Tensor  # () int64, shared by the stack
    dim: int
    support: Tensor | Callable[[], Tensor] | None = (
        None  # (k,) those indices, where it is known how to save drawing them
    )

    def dense(self) -> Tensor:
        """The values at the key's support, 0 elsewhere."""
        values, support = as_values(self.values).dense(), self._support()
        return values.new_zeros((*values.shape[:-1], self.dim)).scatter(-1, support.expand(values.shape), values)

    def nbytes(self) -> Tensor:
        """The head, count, values and key."""
        return HEAD.size + COUNT.size + as_values(self.values).nbytes() + _KEY.size

    def paper_nbytes(self) -> Tensor:
        """4 bytes a value, for both sides know the indices."""
        return as_values(self.values).each(4 * self.values.shape[-1])

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        support = self._support()
        return [Seeded(row, self.key, self.dim, support) for row in rows_of(self.values)]

    def add_to(self, total: Tensor) -> None:
        """Adds the values at the key's support; other entries are not touched."""
        total.index_add_(0, self._support(), as_values(self.values).dense().to(total.dtype))

    def total(self) -> Tensor:
        """The sum of the values, at the support that all have."""
        values = sum_in_order(as_values(self.values).dense())
        return values.new_zeros(self.dim).index_copy_(0, self._support(), values)

    def encode(self) -> bytes:
        """The head, count, values and key."""
        values = as_values(self.values)
        head = encode_head(SEEDED, values.code, self.dim, values.shape[:-1])
        count = encode_count(values.shape[-1], self.dim)
        return head + count + values.encode() + _KEY.pack(int(self.key))

    def largest(self) -> float:
        """The largest magnitude of its values: numbers, scales or levels."""
        return as_values(self.values).largest()

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Seeded:
        """What follows the head; the support is not drawn yet."""
        count = read_count(reader, head.dim)
        values = read_values(reader, head.values, count)
        (key,) = reader.unpack(_KEY, "the key")
        return cls(values, torch.tensor(key), head.dim, partial(_drawn, key, head.dim, count))

    def _support(self) -> Tensor:
        if self.support is None:
            return rng.subset(self.key, self.dim, self.values.shape[-1])
        return self.support if isinstance(self.support, Tensor) else self.support()


@lru_cache(maxsize=4)
def _drawn(key: int, dim: int, count: int) -> Tensor:
    """Remembered, because drawing goes through all entries and the messages of a round's clients share it."""
    return rng.host_subset(key, dim, count)
