"""A vector sent as its randomised Hadamard transform, whose entries are all alike and so take few bits each."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.wire.errors import WireError
from fedcef.wire.payload import HEAD, MODERATE, ROTATED, Head, Payload, encode_head
from fedcef.wire.reader import Reader
from fedcef.wire.values.rotation import padded_size, require_block, unrotate
from fedcef.wire.values.value_forms import read_values
from fedcef.wire.values.values import Sent, as_values, require_below, rows_of

_FIELDS = struct.Struct("<Bq")  # log2 of the block, key


@dataclass(frozen=True, eq=False)
class Rotated(Payload):
    values: Sent  # (..., ⌈dim / block⌉ · block)
    key: Tensor  # (...) int64, or () for all
    dim: int
    block: int

    def dense(self) -> Tensor:
        return unrotate(as_values(self.values).dense(), self.key, self.dim, self.block)

    def nbytes(self) -> Tensor:
        return HEAD.size + _FIELDS.size + as_values(self.values).nbytes()

    def paper_nbytes(self) -> Tensor:
        return as_values(self.values).each(4 * self.dim)

    def rows(self) -> list[Payload]:
        keys = self.key.expand(self.values.shape[:-1]).unbind()
        pairs = zip(rows_of(self.values), keys, strict=True)
        return [Rotated(values, key, self.dim, self.block) for values, key in pairs]

    def add_to(self, total: Tensor) -> None:
        total += self.dense().to(total.dtype)

    def encode(self) -> bytes:
        values = as_values(self.values)
        head = encode_head(ROTATED, values.code, self.dim, values.shape[:-1])
        size = padded_size(self.dim, self.block)
        if values.shape[-1] != size:
            raise WireError(
                f"A rotation of {self.dim} entries in blocks of {self.block} has {size} values, not {values.shape[-1]}."
            )
        _require_rotatable(self.values)
        return head + _FIELDS.pack(self.block.bit_length() - 1, int(self.key)) + values.encode()

    def largest(self) -> float:
        return as_values(self.values).largest()

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Rotated:
        exponent, key = reader.unpack(_FIELDS, "the block and key of a rotation")
        require_block(1 << exponent)
        values = read_values(reader, head.values, padded_size(head.dim, 1 << exponent))
        _require_rotatable(values)
        return cls(values, torch.tensor(key), head.dim, 1 << exponent)


def _require_rotatable(values: Sent) -> None:
    """A rotation is defined in float32, and its sums must not overflow."""
    if isinstance(values, Tensor) and values.dtype == torch.float64:
        raise WireError("The values of a rotation cannot be float64; it is computed in float32.")
    require_below(MODERATE, as_values(values).largest(), "The values of a rotation")
