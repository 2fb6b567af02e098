"""The clients' own payloads, passed on as they came: whoever receives them forms the mean as the server did."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.wire.context import Context
from fedcef.wire.payload import HEAD, MODERATE, RELAY, Head, Payload, encode_head
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.values.values import require_below

MAX_FACTOR = 2.0**16
MAX_RELAYED = 2**16 - 1
"""The most payloads that the format can pass on in one."""
_FIELDS = struct.Struct("<dH")  # factor, number of payloads


@dataclass(frozen=True, eq=False)
class Relay(Payload):
    """factor · (mean of the parts, added up in their order)."""

    parts: Payload  # a stack (N,)
    factor: float

    @classmethod
    def of(cls, payloads: Payload | Sequence[Payload], factor: float) -> Relay:
        """A relay of a stack, or of single payloads, which may differ in form."""
        return cls(as_stack(payloads), factor)

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The length of the parts."""
        return self.parts.dim

    def dense(self) -> Tensor:
        """The factor times the mean of the parts."""
        return self.factor * mean(self.parts) + 0.0  # no negative zeros, as in `Nonzeros`

    def nbytes(self) -> Tensor:
        """The head, the factor and the parts."""
        return self.nbytes_given(None)

    def nbytes_given(self, context: Context | None) -> Tensor:
        """The head, the factor and the parts, all with the same context."""
        return HEAD.size + _FIELDS.size + self.parts.measured(context).sum()

    def paper_nbytes(self) -> Tensor:
        """The sum over the parts."""
        return self.parts.paper_nbytes().sum()

    def rows(self) -> list[Payload]:
        """An error: a relay is what is sent to all, so there is no stack of them."""
        raise WireError("A relay is a single payload; it has no rows.")

    def encode(self) -> bytes:
        """The head, the factor and the parts."""
        return self.encode_given(None)

    def encode_given(self, context: Context | None) -> bytes:
        """The head, the factor and the parts, all with the same context."""
        rows = self.parts.rows()
        if not 1 <= len(rows) <= MAX_RELAYED:
            raise WireError(f"A relay of {len(rows)} payloads cannot be sent; 1 to {MAX_RELAYED} are allowed.")
        _require_summable(rows, self.factor)
        head = encode_head(RELAY, 0, self.dim, torch.Size())
        return head + _FIELDS.pack(self.factor, len(rows)) + b"".join(row.encode_given(context) for row in rows)

    def largest(self) -> float:
        """The largest magnitude in any part."""
        return max(row.largest() for row in self.parts.rows())

    @classmethod
    def read(cls, reader: Reader, head: Head, most: int, read_part: Callable[[Reader, int], Payload]) -> Relay:
        """What follows the head; `read_part` reads one of at most `most` payloads, of the given dimension."""
        if head.values != 0:
            raise WireError(f"A relay has no value type of its own, so the byte must be 0; it is {head.values}.")
        factor, count = reader.unpack(_FIELDS, "the factor and the number of relayed payloads")
        if count == 0:
            raise WireError("A relay holds no payloads; it must hold at least one.")
        if count > most:
            raise WireError(f"A relay holds {count} payloads; at most {most} are accepted here.")
        rows = tuple(read_part(reader, head.dim) for _ in range(count))
        _require_summable(rows, factor)
        return cls.of(rows, factor)


@dataclass(frozen=True, eq=False)
class Rows(Payload):
    """A stack of payloads that may differ in form."""

    payloads: tuple[Payload, ...]  # N single ones

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The length of the vectors."""
        return self.payloads[0].dim

    @property
    def lead(self) -> torch.Size:
        """(N,)."""
        return torch.Size([len(self.payloads)])

    def dense(self) -> Tensor:
        """The decoded vectors, (N, p)."""
        return torch.stack([payload.dense() for payload in self.payloads])

    def nbytes(self) -> Tensor:
        """The sizes, (N,)."""
        return self.nbytes_given(None)

    def nbytes_given(self, context: Context | None) -> Tensor:
        """The sizes with the same context or one for each, (N,)."""
        contexts = [None] * len(self.payloads) if context is None else context.rows(len(self.payloads))
        pairs = zip(self.payloads, contexts, strict=True)
        return torch.stack([payload.nbytes_given(own) for payload, own in pairs])

    def paper_nbytes(self) -> Tensor:
        """The sizes by the paper's rule, (N,)."""
        return torch.stack([payload.paper_nbytes() for payload in self.payloads])

    @property
    def relayable(self) -> bool:
        """Whether all of them are."""
        return all(payload.relayable for payload in self.payloads)

    def rows(self) -> list[Payload]:
        """The payloads."""
        return list(self.payloads)

    def add_to(self, total: Tensor) -> None:
        """An error: a stack is not one vector."""
        raise WireError("A stack of payloads cannot be added to one vector; take it apart with rows().")

    def total(self) -> Tensor:
        """The sum of the decoded vectors, in the type of the first."""
        if (summed := self.payloads[0].added(self.payloads)) is not None:
            return summed
        total = torch.zeros_like(self.payloads[0].dense())
        for payload in self.payloads:
            payload.add_to(total)
        return total

    def encode(self) -> bytes:
        """An error: a stack is not sent as one payload."""
        return encode_head(0, 0, self.dim, torch.Size([len(self.payloads)]))  # says what is wrong

    def largest(self) -> float:
        """The largest magnitude in any of the payloads."""
        return max(payload.largest() for payload in self.payloads)


def as_stack(payloads: Payload | Sequence[Payload]) -> Payload:
    """A stack as it is, or one of single payloads."""
    return payloads if isinstance(payloads, Payload) else Rows(tuple(payloads))


def mean(payloads: Payload | Sequence[Payload]) -> Tensor:
    """The mean of the decoded vectors of a stack, or of single payloads, (dim,), added up in their order.

    The divisor is a tensor on the device: dividing by a number of the host is, on a GPU, a product with its rounded
    reciprocal, and the last bit would depend on the device.
    """
    stack = as_stack(payloads)
    total = stack.total()
    return total / torch.full((), stack.lead[0], dtype=total.dtype, device=total.device)


def _require_summable(rows: Sequence[Payload], factor: float) -> None:
    """Neither the sum nor its product with the factor may overflow."""
    require_below(MAX_FACTOR, abs(factor), "The factor of a relay")
    require_below(MODERATE, max(row.largest() for row in rows), "The numbers in a relay")
