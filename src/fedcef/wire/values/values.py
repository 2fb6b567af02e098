"""What stands at the entries that are sent: plain numbers, or one of the shorter forms that `Values` are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from fedcef.wire.reader import WireError
from fedcef.wire.stacks import TensorTree, for_each_vector
from fedcef.wire.values import number_formats

LEVELS, LEVEL_TABLES, POWERS = range(5, 8)
"""Numbers in a payload's value-type byte beyond those of plain numbers (number_formats.py)."""


class Values(TensorTree, ABC):
    """The values of one vector, or of a stack of them, (..., k), in the form in which they travel."""

    @property
    @abstractmethod
    def code(self) -> int:
        """The number of this form in a payload's value-type byte."""

    @property
    @abstractmethod
    def shape(self) -> torch.Size:
        """(..., k)."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The decoded values, (..., k), in a type to compute with."""

    @abstractmethod
    def nbytes(self) -> Tensor:
        """The exact encoded size for each vector, int64 (...): tensor operations only, nothing is read back."""

    @abstractmethod
    def rows(self) -> list[Values]:
        """A stack (N, ...) taken apart along its first axis."""

    @abstractmethod
    def encode(self) -> bytes:
        """The bytes of a single vector's values."""

    @abstractmethod
    def each(self, size: int) -> Tensor:
        """The same size for each vector of the stack, int64 (...)."""

    def largest(self) -> float:
        """The largest magnitude among the numbers that a single vector's bytes carry, read back; 0 for none."""
        return largest_of(self.dense())


@dataclass(frozen=True, eq=False)
class Floats(Values):
    """Numbers sent one by one in the type that they have."""

    numbers: Tensor  # (..., k)

    @property
    def code(self) -> int:
        """The number of the tensor's type."""
        return number_formats.of_tensor(self.numbers).code

    @property
    def shape(self) -> torch.Size:
        """(..., k)."""
        return self.numbers.shape

    def dense(self) -> Tensor:
        """The numbers, half precision as float32."""
        return self.numbers.float() if self.numbers.dtype.itemsize == 2 else self.numbers

    def nbytes(self) -> Tensor:
        """2, 4 or 8 bytes a number."""
        return self.each(self.shape[-1] * self.numbers.dtype.itemsize)

    def each(self, size: int) -> Tensor:
        """As many for each vector, on the device of the numbers."""
        return for_each_vector(size, self.numbers)

    def rows(self) -> list[Values]:
        """The values of each vector of the stack."""
        return [Floats(row) for row in self.numbers.unbind()]

    def encode(self) -> bytes:
        """The numbers, little endian; they must be finite."""
        return number_formats.to_bytes(self.numbers)


Sent: TypeAlias = Tensor | Values
"""Values as a payload holds them: a float tensor stands for `Floats`."""


def as_values(sent: Sent) -> Values:
    """The values that a payload holds, as `Values`."""
    return Floats(sent) if isinstance(sent, Tensor) else sent


def rows_of(sent: Sent) -> Sequence[Sent]:
    """A stack (N, ...) taken apart along its first axis."""
    return list(sent.unbind()) if isinstance(sent, Tensor) else sent.rows()


def largest_of(numbers: Tensor) -> float:
    """The largest magnitude, read back; 0 if there are no numbers."""
    return float(numbers.abs().max()) if numbers.numel() else 0.0


def require_below(limit: float, largest: float, what: str) -> None:
    """Refuse numbers whose sums or products could overflow, so that whatever is decoded is finite."""
    if not largest < limit:
        raise WireError(f"{what} must be smaller than {limit:g} in magnitude; one is {largest:g}.")
