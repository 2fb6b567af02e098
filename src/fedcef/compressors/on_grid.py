"""Whole numbers of a grid that a round's clients share, as a payload; and the sum of such payloads.

On the wire a number takes `bits` bits, as itself modulo 2^bits, whether it is masked or not.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.rng import Key, subset
from fedcef.wire import HEAD, Head, Payload, Reader, WireError, encode_head, register_form, unrotate
from fedcef.wire.codes.bits import bytes_for, pack_fixed, unpack_fixed
from fedcef.wire.forms.rotated import padded_size, require_block
from fedcef.wire.stacks import for_each_vector, sum_in_order

EXACT_BITS = 24
"""Whole numbers up to 2^24 are float32 numbers, and so are their sums."""
FORM = 193
_FIELDS = struct.Struct("<BBh?Iq")  # log2 of the block + 1 (0: none), bits, exponent of the step, unbiased, count, key


@dataclass(frozen=True, eq=False)
class OnGrid(Payload):
    """Whole numbers of a grid, in places and after a rotation that follow from a shared key."""

    steps: Tensor  # (..., k) float32: whole numbers
    key: Tensor  # () int64
    dim: int
    block: int  # of the rotation; 0: none
    bits: int
    exponent: int  # a step is 2^exponent
    unbiased: bool = False  # whether decoded values are multiplied by (entries)/k

    def dense(self) -> Tensor:
        """The numbers times the step, in their places, rotated back."""
        entries, count = self.entries, self.steps.shape[-1]
        values = self.steps * 2.0**self.exponent
        if count < entries:
            support = places(self.key, entries, count)
            values = values * (entries / count if self.unbiased else 1.0)
            empty = values.new_zeros((*values.shape[:-1], entries))
            values = empty.scatter(-1, support.expand(values.shape), values)
        return unrotate(values, self.key, self.dim, self.block) if self.block else values

    @property
    def relayable(self) -> bool:
        """No: under secure aggregation nobody has the single ones, and without it a run is to be the same."""
        return False

    @property
    def entries(self) -> int:
        """How many entries there are to draw from: the vector's, filled up to whole blocks."""
        return padded_size(self.dim, self.block) if self.block else self.dim

    @property
    def lead(self) -> torch.Size:
        """The leading axes of the numbers."""
        return self.steps.shape[:-1]

    def nbytes(self) -> Tensor:
        """The head, the grid and the numbers."""
        packed = bytes_for(self.steps.shape[-1] * self.bits)
        return for_each_vector(HEAD.size + len(PACKAGE) + _FIELDS.size + packed, self.steps)

    def paper_nbytes(self) -> Tensor:
        """4 bytes a number."""
        return for_each_vector(4 * self.steps.shape[-1], self.steps)

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        return [replace(self, steps=row) for row in self.steps]

    def total(self) -> Tensor:
        """The sum, formed on the grid, where it is exact."""
        return self.summed().dense()

    def summed(self) -> OnGrid:
        """The sum of a stack as one payload."""
        return replace(self, steps=sum_in_order(self.steps))

    def added(self, others: Sequence[Payload]) -> Tensor | None:
        """The sum of single payloads, formed on the grid if all are on the same."""
        if not all(isinstance(one, OnGrid) and one.grid == self.grid for one in others):
            return None
        return replace(self, steps=sum_in_order(one.steps for one in others if isinstance(one, OnGrid))).dense()

    @property
    def grid(self) -> tuple[int, ...]:
        """What must be equal for numbers to be added up; reads the key back."""
        count = self.steps.shape[-1]
        return (int(self.key), self.dim, self.block, self.bits, self.exponent, int(self.unbiased), count)

    def encode(self) -> bytes:
        """The head, the grid and the numbers modulo 2^bits."""
        if not bool(self.steps.isfinite().all()):
            raise WireError("A vector with a number that is not finite cannot be sent.")
        head = encode_head(FORM, 0, self.dim, self.steps.shape[:-1]) + PACKAGE
        block = self.block.bit_length()
        fields = _FIELDS.pack(block, self.bits, self.exponent, self.unbiased, self.steps.shape[-1], int(self.key))
        whole = self.steps.to(torch.int64).cpu().numpy() & ((1 << self.bits) - 1)
        return head + fields + pack_fixed(whole, self.bits)

    @classmethod
    def read(cls, reader: Reader, head: Head) -> OnGrid:
        """What follows the name of the package; numbers are from -2^(bits-1) on."""
        block, bits, exponent, unbiased, count, key = reader.unpack(_FIELDS, "a grid")
        block = 1 << block - 1 if block else 0
        if head.values or not 2 <= bits <= EXACT_BITS or not -100 <= exponent <= 15:
            raise WireError(f"A grid of {bits} bits with steps of 2^{exponent} is not one that can be read.")
        if block:
            require_block(block)
        if not min(head.dim, 1) <= count <= (padded_size(head.dim, block) if block else head.dim):
            raise WireError(f"{count} entries cannot be drawn from a vector of dimension {head.dim}.")
        packed = reader.take(bytes_for(count * bits), "the numbers of a grid")
        whole = torch.from_numpy(unpack_fixed(packed, count, bits, "numbers of a grid").astype("int64"))
        steps = (whole - ((whole >> bits - 1) << bits)).float()
        return cls(steps, torch.tensor(key), head.dim, block, bits, exponent, unbiased)


def places(key: Tensor, entries: int, count: int) -> Tensor:
    """The entries that a round draws, (k,), apart from the signs of its rotation."""
    return subset(Key(key, key).of_part(1), entries, count)


PACKAGE = register_form(FORM, OnGrid.read, package="fedcef.compressors.on_grid")


class NeedsSingleMessages(ConfigError):
    """A method looks at the messages of single clients, and the server has only their sum."""


@dataclass(frozen=True, eq=False)
class Summed(Payload):
    """A stack of payloads on a grid, of which there is only the sum."""

    sum: OnGrid
    count: int
    """How many were added up."""

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The length of the vectors."""
        return self.sum.dim

    @property
    def lead(self) -> torch.Size:
        """(S,)."""
        return torch.Size([self.count])

    @property
    def relayable(self) -> bool:
        """No."""
        return False

    def total(self) -> Tensor:
        """The sum."""
        return self.sum.dense()

    def summed(self) -> OnGrid:
        """The sum as one payload."""
        return self.sum

    def rows(self) -> list[Payload]:
        """An error: there is only the sum."""
        raise NeedsSingleMessages("The server has the sum of the messages and none of them.")

    def dense(self) -> Tensor:
        """An error: there is only the sum."""
        return self.rows()[0].dense()

    def nbytes(self) -> Tensor:
        """An error: there is only the sum."""
        return self.rows()[0].nbytes()

    def paper_nbytes(self) -> Tensor:
        """An error: there is only the sum."""
        return self.rows()[0].paper_nbytes()

    def encode(self) -> bytes:
        """An error: there is only the sum."""
        return self.rows()[0].encode()
