"""A vector sent as its randomised Hadamard transform, whose entries are all alike and so take few bits each.

y = H(D x)/√block, block by block, with random signs D from a key, spreads every entry over its block, so that the
entries of y look normally distributed whatever x is.  H is applied by butterflies of float32 sums and differences in a
fixed order, so every device gets the same bits.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.wire.payload import HEAD, MODERATE, ROTATED, Head, Payload, encode_head
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.values.registry import read_values
from fedcef.wire.values.values import Sent, as_values, require_below, rows_of

MAX_BLOCK = 2**16
_FIELDS = struct.Struct("<Bq")  # log2 of the block, key


@dataclass(frozen=True, eq=False)
class Rotated(Payload):
    """The values of a rotated vector and the key of its signs."""

    values: Sent  # (..., ⌈dim / block⌉ · block)
    key: Tensor  # (...) int64, or () for all
    dim: int
    block: int

    def dense(self) -> Tensor:
        """The values, rotated back."""
        return unrotate(as_values(self.values).dense(), self.key, self.dim, self.block)

    def nbytes(self) -> Tensor:
        """The head, block and key, and the values."""
        return HEAD.size + _FIELDS.size + as_values(self.values).nbytes()

    def paper_nbytes(self) -> Tensor:
        """4 bytes an entry."""
        return as_values(self.values).each(4 * self.dim)

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        keys = self.key.expand(self.values.shape[:-1]).unbind()
        pairs = zip(rows_of(self.values), keys, strict=True)
        return [Rotated(values, key, self.dim, self.block) for values, key in pairs]

    def encode(self) -> bytes:
        """The head, block and key, and the values."""
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
        """The largest magnitude of its values: numbers, scales or levels."""
        return as_values(self.values).largest()

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Rotated:
        """What follows the head; nothing is rotated yet."""
        exponent, key = reader.unpack(_FIELDS, "the block and key of a rotation")
        require_block(1 << exponent)
        values = read_values(reader, head.values, padded_size(head.dim, 1 << exponent))
        _require_rotatable(values)
        return cls(values, torch.tensor(key), head.dim, 1 << exponent)


def rotate(x: Tensor, key: Tensor, block: int) -> Tensor:
    """(..., dim) -> (..., ⌈dim / block⌉ · block) float32; `key` has the leading axes of x, or none."""
    signed = torch.where(_negative(key, x.shape[-1]), -x.float(), x.float())
    padding = padded_size(x.shape[-1], block) - x.shape[-1]
    return _hadamard(torch.nn.functional.pad(signed, (0, padding)), block)


def unrotate(y: Tensor, key: Tensor, dim: int, block: int) -> Tensor:
    """(..., ⌈dim / block⌉ · block) -> (..., dim) float32: what `rotate` made y of, up to rounding."""
    x = _hadamard(y.float(), block)[..., :dim]
    return torch.where(_negative(key, dim), -x, x)


def padded_size(dim: int, block: int) -> int:
    """⌈dim / block⌉ · block."""
    require_block(block)
    return -(-dim // block) * block


def require_block(block: int) -> None:
    """Refuse blocks that are no powers of two, or too long."""
    if not (1 <= block <= MAX_BLOCK and block & (block - 1) == 0):
        raise WireError(f"A rotation in blocks of {block} is not possible; blocks are powers of two up to {MAX_BLOCK}.")


def _negative(key: Tensor, dim: int) -> Tensor:
    """Which entries change their sign, (..., dim)."""
    return rng.bits(key, dim) < 0


def _hadamard(x: Tensor, block: int) -> Tensor:
    """H x/√block of each block of (..., m · block); entry i of H x is the sum of (-1)^popcount(i & j) x_j over j."""
    shape = x.shape
    half = 1
    while half < block:
        a, b = x.reshape(*shape[:-1], -1, 2, half).unbind(-2)
        x = torch.stack([a + b, a - b], dim=-2)
        half *= 2
    return x.reshape(shape) * (1 / math.sqrt(block))


def _require_rotatable(values: Sent) -> None:
    """A rotation is defined in float32, and its sums must not overflow."""
    if isinstance(values, Tensor) and values.dtype == torch.float64:
        raise WireError("The values of a rotation cannot be float64; it is computed in float32.")
    require_below(MODERATE, as_values(values).largest(), "The values of a rotation")
