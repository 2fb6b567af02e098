"""Values that are powers of two, or zero: a sign and an exponent for each, in the shortest of three codings.

Exponents are sent as steps below the largest.  As most lie within a few of each other, that takes 2 or 3 bits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.wire.codes.bits import (
    Integers,
    bytes_for,
    pack_fixed,
    pack_unary,
    positions_of_ones,
    require_zero_padding,
    unpack_fixed,
)
from fedcef.wire.codes.symbols import Alphabet, encode_symbols_of, plan, read_symbols
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.stacks import for_each_vector, in_pieces
from fedcef.wire.values.values import POWERS, Values

FIXED, RICE, HUFFMAN = range(3)

_SIGN = 256
_MAX_RICE = 7  # differences of exponents have 8 bits
_CODING = struct.Struct("<B")
_RANGE = struct.Struct("<BB")  # largest and smallest exponent
_RICE = struct.Struct("<BI")  # Rice parameter, bytes of the unary stream
_STEPS = Alphabet(16, 4)  # what the Huffman code is for; a step of _FAR or more is sent as _FAR and a byte
_FAR = 15


@dataclass(frozen=True, eq=False)
class Powers(Values):
    """±2^(e - 127) for the code e or 256 + e, with 1 <= e <= 254, and 0 for the code 0: the top bits of a float32."""

    codes: Tensor  # (..., k) int16

    @classmethod
    def of(cls, x: Tensor) -> Powers:
        """Sign and exponent of x, (..., k), as float32; the mantissa is dropped, and what is subnormal becomes 0."""
        codes = (x.float().contiguous().view(torch.int32) >> 23) & 511
        return cls(torch.where(codes & 255 == 0, 0, codes).to(torch.int16))

    @property
    def code(self) -> int:
        """Its value type."""
        return POWERS

    @property
    def shape(self) -> torch.Size:
        """(..., k)."""
        return self.codes.shape

    def dense(self) -> Tensor:
        """The powers, float32."""
        return (self.codes.int() << 23).view(torch.float32)

    def nbytes(self) -> Tensor:
        """The coding's number and the shortest of the codings."""
        size, _, _ = self._plan()
        return _CODING.size + size

    def rows(self) -> list[Values]:
        """The values of each vector of the stack."""
        return [Powers(row) for row in self.codes.unbind()]

    def encode(self) -> bytes:
        """The coding's number, and exponents and signs in the shortest coding."""
        self._require_codes()
        _, coding, parameter = self._plan()
        codes = self.codes.detach().cpu().contiguous().numpy().astype(np.int64)
        if int(coding) == FIXED:
            return _CODING.pack(FIXED) + pack_fixed(codes, 9)
        top, low, below = self._steps()
        steps, rice = below.cpu().numpy(), int(parameter)
        fields = _CODING.pack(int(coding)) + _RANGE.pack(int(top), int(low))
        signs = np.packbits(codes[codes > 0] >= _SIGN, bitorder="little").tobytes()
        if int(coding) == HUFFMAN:
            far = (steps[steps >= _FAR] - _FAR).astype(np.uint8).tobytes()
            return fields + encode_symbols_of(_near(below), _STEPS) + far + signs
        unary = pack_unary(steps >> rice)
        return fields + _RICE.pack(rice, len(unary)) + unary + pack_fixed(steps & ((1 << rice) - 1), rice) + signs

    def each(self, size: int) -> Tensor:
        """As many for each vector, on the device of the codes."""
        return for_each_vector(size, self.codes)

    @classmethod
    def read(cls, reader: Reader, count: int) -> Powers:
        """The next `count` values."""
        (coding,) = reader.unpack(_CODING, "the coding of exponents")
        if coding == FIXED:
            codes = unpack_fixed(reader.take(bytes_for(9 * count), "the exponents"), count, 9, "stream of exponents")
            powers = cls(torch.from_numpy(codes.astype(np.int16)))
            powers._require_codes()
            return powers
        if coding in (RICE, HUFFMAN):
            top, low = reader.unpack(_RANGE, "the range of exponents")
            if not 1 <= low <= top + 1 <= 255:
                raise WireError(f"Exponents from {low} to {top} are not allowed; they must ascend within 1 to 254.")
            steps = (_read_rice if coding == RICE else _read_huffman)(reader, count)
            return cls(torch.from_numpy(_with_signs(reader, steps, top, low)))
        allowed = "0 (fixed), 1 (Rice) and 2 (Huffman)"
        raise WireError(f"Unknown coding {coding} of exponents; allowed are {allowed}.")

    def _steps(self) -> tuple[Tensor, Tensor, Tensor]:
        """The largest and the smallest exponent, (...), and how far each entry lies below the largest, (..., k).

        A zero lies one below the smallest.  Where there are only zeros the two are 0 and 1.
        """
        exponents = (self.codes & 255).long()
        if not exponents.shape[-1]:
            return for_each_vector(0, exponents), for_each_vector(1, exponents), exponents
        top = exponents.amax(-1)
        low = torch.where(exponents == 0, 255, exponents).amin(-1)
        low = torch.where(top == 0, 1, low)
        floor = (low - 1).unsqueeze(-1)
        return top, low, top.unsqueeze(-1) - torch.where(exponents == 0, floor, exponents)

    def _plan(self) -> tuple[Tensor, Tensor, Tensor]:
        """Size without the coding's byte, coding and Rice parameter, (...); the first of several that are as short."""
        size, coding, parameter = in_pieces(lambda some: Powers(some)._planned(), self.codes)
        return size, coding, parameter

    def _planned(self) -> tuple[Tensor, Tensor, Tensor]:
        count = self.shape[-1]
        _, _, steps = self._steps()
        size = for_each_vector(bytes_for(9 * count), steps)
        coding, best = torch.full_like(size, FIXED), torch.zeros_like(size)
        signs = ((self.codes != 0).sum(-1) + 7) // 8
        for parameter in range(_MAX_RICE + 1):
            unary = (count + (steps >> parameter).sum(-1) + 7) // 8
            rice = _RANGE.size + _RICE.size + unary + bytes_for(parameter * count) + signs
            coding, best = torch.where(rice < size, RICE, coding), torch.where(rice < size, parameter, best)
            size = torch.minimum(rice, size)
        huffman = _RANGE.size + plan(_near(steps), _STEPS).nbytes + (steps >= _FAR).sum(-1) + signs
        coding = torch.where(huffman < size, HUFFMAN, coding)
        return torch.minimum(huffman, size), coding, best

    def _require_codes(self) -> None:
        """Zeros have no sign, and there are no infinities."""
        if self.codes.dtype != torch.int16:
            raise WireError(f"Codes of type {self.codes.dtype} cannot be sent as powers of two; they must be int16.")
        exponent = self.codes & 255
        bad = (exponent == 255) | (self.codes == _SIGN) | (self.codes < 0) | (self.codes > 511)
        if bad.any():
            where = int(bad.int().argmax())
            raise WireError(f"Code {int(self.codes[where])} at entry {where} stands for no power of two.")


def _near(steps: Tensor) -> Tensor:
    """The symbols that the Huffman code is for, (..., k) uint8."""
    return steps.clamp(max=_FAR).to(torch.uint8)


def _read_rice(reader: Reader, count: int) -> Integers:
    """`count` steps."""
    rice, unary_size = reader.unpack(_RICE, "the Rice parameter of exponents")
    if rice > _MAX_RICE:
        raise WireError(f"Rice parameter {rice} of exponents is not allowed; the largest is {_MAX_RICE}.")
    unary = reader.take(unary_size, "the unary stream of exponents")
    rest = reader.take(bytes_for(rice * count), "the low bits of exponents")
    ends = positions_of_ones(unary, count, "unary stream of exponents")
    if unary_size != bytes_for(int(ends[-1]) + 1 if count else 0):
        raise WireError(f"The unary stream of {unary_size} bytes goes on after its last number.")
    steps: Integers = np.diff(ends, prepend=-1) - 1
    if count and int(steps.max()) > 255:
        raise WireError(f"An exponent lies {int(steps.max())} steps below the largest; 255 is the most.")
    steps <<= rice
    steps += unpack_fixed(rest, count, rice, "stream of low bits")
    return steps


def _read_huffman(reader: Reader, count: int) -> Integers:
    """`count` steps."""
    steps: Integers = read_symbols(reader, count, _STEPS).numpy().astype(np.int64)
    far = steps == _FAR
    size = int(np.count_nonzero(far))
    steps[far] += np.frombuffer(reader.take(size, f"{size} far exponents"), dtype=np.uint8)
    return steps


def _with_signs(reader: Reader, steps: Integers, top: int, low: int) -> NDArray[np.int16]:
    """Codes from steps below the largest exponent and the signs that follow them."""
    if steps.size and int(steps.max()) > top - low + 1:
        raise WireError(f"An exponent lies {int(steps.max())} below the largest, {top}; the smallest is {low}.")
    nonzero = steps <= top - low
    kept = int(np.count_nonzero(nonzero))
    data = reader.take(bytes_for(kept), "the signs")
    require_zero_padding(data, kept, "stream of signs")
    signs = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=kept, bitorder="little")
    codes = np.zeros(steps.size, dtype=np.int16)
    codes[nonzero] = top - steps[nonzero] + signs.astype(np.int64) * _SIGN
    return codes
