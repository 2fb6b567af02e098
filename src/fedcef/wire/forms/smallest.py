"""A vector in the shortest of several forms that decode to the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from fedcef.wire.context import Context
from fedcef.wire.payload import Payload
from fedcef.wire.reader import WireError


@dataclass(frozen=True, eq=False)
class Smallest(Payload):
    """Each vector of the stack by itself is sent in its shortest form, the first on a tie."""

    choices: tuple[Payload, ...]

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The length of the vector."""
        return self.choices[0].dim

    def dense(self) -> Tensor:
        """The decoded value, by the first choice."""
        return self.choices[0].dense()

    def nbytes(self) -> Tensor:
        """The size of the shortest choice, vector by vector."""
        return self.nbytes_given(None)

    def nbytes_given(self, context: Context | None) -> Tensor:
        """The size of the choice that is shortest with the context, vector by vector."""
        return reduce(torch.minimum, [choice.nbytes_given(context) for choice in self.choices])

    def paper_nbytes(self) -> Tensor:
        """The smallest size by the paper's rule."""
        return reduce(torch.minimum, [choice.paper_nbytes() for choice in self.choices])

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        return [Smallest(row) for row in zip(*(choice.rows() for choice in self.choices), strict=True)]

    @property
    def lead(self) -> torch.Size:
        """Those of the first choice."""
        return self.choices[0].lead

    def add_to(self, total: Tensor) -> None:
        """Adds the decoded value, by the first choice."""
        self.choices[0].add_to(total)

    def total(self) -> Tensor:
        """The sum of the decoded vectors, by the first choice."""
        return self.choices[0].total()

    def encode(self) -> bytes:
        """The bytes of the shortest choice."""
        return self.encode_given(None)

    def encode_given(self, context: Context | None) -> bytes:
        """The bytes of the choice that is shortest with the context."""
        sizes = [choice.nbytes_given(context) for choice in self.choices]
        if sizes[0].ndim:
            return self.choices[0].encode()  # says what is wrong
        shortest = min(zip(map(int, sizes), self.choices, strict=True), key=lambda pair: pair[0])[1]
        return shortest.encode_given(context)

    def largest(self) -> float:
        """That of the first choice."""
        return self.choices[0].largest()


def smallest(*payloads: Payload) -> Payload:
    """A payload that is sent as the shortest of several that decode to the same vector; the first on a tie."""
    if not payloads:
        raise WireError("The smallest of no payloads was asked for; there must be at least one.")
    if len({payload.dim for payload in payloads}) > 1:
        raise WireError(f"Payloads of dimensions {[payload.dim for payload in payloads]} cannot decode to the same.")
    return Smallest(payloads) if len(payloads) > 1 else payloads[0]
