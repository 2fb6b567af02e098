"""A vector sent as some of its entries, at indices that both sides draw from the same key."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from fedcef import rng
from fedcef.wire import value_types
from fedcef.wire.payload import (
    COUNT,
    HEAD,
    SEEDED,
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

_KEY = struct.Struct("<q")


@dataclass(frozen=True, eq=False)
class Seeded(Payload):
    values: Tensor  # (..., k), at the indices rng.subset(key, dim, k)
    key: Tensor  # () int64, shared by the stack
    dim: int
    support: Tensor | Callable[[], Tensor] | None = (
        None  # (k,) those indices, where it is known how to save drawing them
    )

    def dense(self) -> Tensor:
        values, support = decoded(self.values), self._support()
        return values.new_zeros((*values.shape[:-1], self.dim)).scatter(-1, support.expand(values.shape), values)

    def nbytes(self) -> Tensor:
        values_size = self.values.shape[-1] * self.values.dtype.itemsize
        return for_each_vector(HEAD.size + COUNT.size + values_size + _KEY.size, self.values)

    def paper_nbytes(self) -> Tensor:
        return for_each_vector(4 * self.values.shape[-1], self.values)

    def rows(self) -> list[Payload]:
        support = self._support()
        return [Seeded(row, self.key, self.dim, support) for row in self.values.unbind()]

    def add_to(self, total: Tensor) -> None:
        total.index_add_(0, self._support(), decoded(self.values).to(total.dtype))

    def encode(self) -> bytes:
        head = encode_head(SEEDED, self.values, self.dim)
        count = encode_count(len(self.values), self.dim)
        return head + count + value_types.to_bytes(self.values) + _KEY.pack(int(self.key))

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Seeded:
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
    """Remembered, because drawing costs a sort and the messages of a round's clients, decoded one by one, share it."""
    return rng.subset(torch.tensor(key), dim, count)
