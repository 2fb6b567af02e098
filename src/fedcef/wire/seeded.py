"""A vector sent as some of its entries, at indices that both sides draw from the same key."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

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

    def dense(self) -> Tensor:
        values = decoded(self.values)
        support = rng.subset(self.key, self.dim, values.shape[-1])
        return values.new_zeros((*values.shape[:-1], self.dim)).scatter(-1, support.expand(values.shape), values)

    def nbytes(self) -> Tensor:
        values_size = self.values.shape[-1] * self.values.dtype.itemsize
        return for_each_vector(HEAD.size + COUNT.size + values_size + _KEY.size, self.values)

    def paper_nbytes(self) -> Tensor:
        return for_each_vector(4 * self.values.shape[-1], self.values)

    def rows(self) -> list[Payload]:
        return [Seeded(row, self.key, self.dim) for row in self.values.unbind()]

    def add_to(self, total: Tensor) -> None:
        support = _support(int(self.key), self.dim, len(self.values)).to(total.device)
        total.index_add_(0, support, decoded(self.values).to(total.dtype))

    def encode(self) -> bytes:
        head = encode_head(SEEDED, self.values, self.dim)
        count = encode_count(len(self.values), self.dim)
        return head + count + value_types.to_bytes(self.values) + _KEY.pack(int(self.key))

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Seeded:
        count = read_count(reader, head.dim)
        values = read_values(reader, head.values, count)
        (key,) = reader.unpack(_KEY, "the key")
        return cls(values, torch.tensor(key), head.dim)


@lru_cache(maxsize=4)
def _support(key: int, dim: int, count: int) -> Tensor:
    """Remembered, because the messages of a round's clients, added up one by one, share it; it costs a sort."""
    return rng.subset(torch.tensor(key), dim, count)
