"""Values that are levels: a small code for each, and a scale or a table of levels for each block of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.wire.codes import symbols
from fedcef.wire.codes.symbols import Alphabet
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.stacks import for_each_vector
from fedcef.wire.values.number_formats import VALUE_TYPES, from_bytes, to_bytes
from fedcef.wire.values.tables import table_named, table_of_code
from fedcef.wire.values.values import LEVEL_TABLES, LEVELS, Values, largest_of, require_below

MAX_SCALE = 2.0**125
"""Scales stay below it, so that a scale times a level is finite."""

_FIELDS = struct.Struct("<BI")  # table or bits, block


@dataclass(frozen=True, eq=False)
class Levels(Values):
    """scales[block of j] · TABLE[codes_j], with a table that the format names."""

    codes: Tensor  # (..., k) uint8
    scales: Tensor  # (..., ceil(k / block)) float32; (..., 1) for block 0
    table: str
    block: int = 0  # entries that share a scale; 0: all

    @property
    def code(self) -> int:
        """Its value type."""
        return LEVELS

    @property
    def shape(self) -> torch.Size:
        """(..., k)."""
        return self.codes.shape

    def dense(self) -> Tensor:
        """Scales times levels, float32."""
        levels = table_named(self.table).tensor(self.codes.device)[self.codes.int()]
        if self.block == 0:
            return self.scales * levels
        spread = self.scales.unsqueeze(-1).expand(*self.scales.shape, self.block).flatten(-2)
        return spread[..., : self.shape[-1]] * levels

    def nbytes(self) -> Tensor:
        """Table, block, scales and coded codes."""
        return _FIELDS.size + 4 * self.scales.shape[-1] + symbols.plan(self.codes, self._alphabet()).nbytes

    def rows(self) -> list[Values]:
        """The values of each vector of the stack."""
        pairs = zip(self.codes.unbind(), self.scales.unbind(), strict=True)
        return [Levels(codes, scales, self.table, self.block) for codes, scales in pairs]

    def encode(self) -> bytes:
        """Table, block, scales and coded codes."""
        count = len(self.codes)
        _require_floats(
            self.scales, (_blocks(count, self.block),), f"scales for {count} codes in blocks of {self.block}"
        )
        require_below(MAX_SCALE, largest_of(self.scales), "Scales")
        fields = _FIELDS.pack(table_named(self.table).code, self.block)
        return fields + to_bytes(self.scales) + _encoded(self.codes, self._alphabet())

    def each(self, size: int) -> Tensor:
        """As many for each vector, on the device of the codes."""
        return for_each_vector(size, self.codes)

    def largest(self) -> float:
        """The largest scale."""
        return largest_of(self.scales)

    @classmethod
    def read(cls, reader: Reader, count: int) -> Levels:
        """The next `count` values."""
        code, block = reader.unpack(_FIELDS, "the table and block of levels")
        table = table_of_code(code)
        scales = _read_floats(reader, _blocks(count, block), "scales")
        require_below(MAX_SCALE, largest_of(scales), "Scales")
        codes = symbols.read_symbols(reader, count, Alphabet(len(table.levels), table.width))
        return cls(codes, scales, table.name, block)

    def _alphabet(self) -> Alphabet:
        table = table_named(self.table)
        return Alphabet(len(table.levels), table.width)


@dataclass(frozen=True, eq=False)
class LevelTables(Values):
    """tables[block of j][codes_j]: each block has levels of its own."""

    codes: Tensor  # (..., k) uint8
    tables: Tensor  # (..., blocks, 2^bits) float32
    bits: int  # 1 to 4
    block: int = 0  # entries that share a table; 0: all

    @property
    def code(self) -> int:
        """Its value type."""
        return LEVEL_TABLES

    @property
    def shape(self) -> torch.Size:
        """(..., k)."""
        return self.codes.shape

    def dense(self) -> Tensor:
        """The levels that the codes stand for, float32."""
        index = self.codes.long()
        if self.block:
            index = index + (torch.arange(self.shape[-1], device=index.device) // self.block << self.bits)
        return self.tables.flatten(-2).gather(-1, index)

    def nbytes(self) -> Tensor:
        """Bits, block, tables and coded codes."""
        return _FIELDS.size + 4 * self.tables.shape[-2:].numel() + symbols.plan(self.codes, self._alphabet()).nbytes

    def rows(self) -> list[Values]:
        """The values of each vector of the stack."""
        pairs = zip(self.codes.unbind(), self.tables.unbind(), strict=True)
        return [LevelTables(codes, tables, self.bits, self.block) for codes, tables in pairs]

    def encode(self) -> bytes:
        """Bits, block, tables and coded codes."""
        _require_bits(self.bits)
        count = len(self.codes)
        shape = (_blocks(count, self.block), 1 << self.bits)
        _require_floats(self.tables, shape, f"tables for {count} codes of {self.bits} bits in blocks of {self.block}")
        fields = _FIELDS.pack(self.bits, self.block)
        return fields + to_bytes(self.tables.flatten()) + _encoded(self.codes, self._alphabet())

    def each(self, size: int) -> Tensor:
        """As many for each vector, on the device of the codes."""
        return for_each_vector(size, self.codes)

    def largest(self) -> float:
        """The largest level of any table."""
        return largest_of(self.tables)

    @classmethod
    def read(cls, reader: Reader, count: int) -> LevelTables:
        """The next `count` values."""
        bits, block = reader.unpack(_FIELDS, "the bits and block of levels")
        _require_bits(bits)
        tables = _read_floats(reader, _blocks(count, block) << bits, "levels").reshape(-1, 1 << bits)
        return cls(symbols.read_symbols(reader, count, Alphabet(1 << bits, bits)), tables, bits, block)

    def _alphabet(self) -> Alphabet:
        return Alphabet(1 << self.bits, self.bits)


def _blocks(count: int, block: int) -> int:
    """How many blocks `count` entries make."""
    return -(-count // block) if block else 1


def _encoded(codes: Tensor, alphabet: Alphabet) -> bytes:
    if codes.dtype != torch.uint8:
        raise WireError(f"Codes of type {codes.dtype} cannot be sent; they must be uint8.")
    return symbols.encode_symbols_of(codes, alphabet)


def _read_floats(reader: Reader, count: int, what: str) -> Tensor:
    return from_bytes(reader.take(4 * count, f"{count} {what}"), VALUE_TYPES["float32"])


def _require_floats(numbers: Tensor, shape: tuple[int, ...], what: str) -> None:
    if numbers.dtype != torch.float32 or numbers.shape != shape:
        raise WireError(f"The {what} must be float32 {shape}; they are {numbers.dtype} {tuple(numbers.shape)}.")


def _require_bits(bits: int) -> None:
    if not 1 <= bits <= 4:
        raise WireError(f"Tables of levels for {bits} bits are not allowed; bits are 1 to 4.")
