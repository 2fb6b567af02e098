"""The named tables of levels: constants of the format, float32, ascending."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcef.wire.reader import WireError


class Table(NamedTuple):
    """Levels that both sides know."""

    name: str
    code: int  # its number on the wire
    width: int  # bits of a packed code; 0 stands for five codes a byte in base 3
    levels: tuple[float, ...]

    def tensor(self, device: torch.device) -> Tensor:
        """The levels on a device, filled in there: a copy from the host could not be recorded in a CUDA graph."""
        if device.type == "cpu":
            return torch.tensor(self.levels, dtype=torch.float32)
        if len(self.levels) > 16:
            steps = torch.arange(len(self.levels), dtype=torch.float32, device=device) - len(self.levels) // 2
            return steps / torch.full((), len(self.levels) // 2, dtype=torch.float32, device=device)
        return torch.stack([torch.full((), level, dtype=torch.float32, device=device) for level in self.levels])


def _uniform(bits: int) -> tuple[float, ...]:
    """2^bits - 1 equally spaced levels from -1 to 1, each rounded to float32; the middle one is 0."""
    half = 2 ** (bits - 1) - 1
    return tuple((np.arange(-half, half + 1, dtype=np.float32) / np.float32(half)).tolist())


def _symmetric(positive: list[float]) -> tuple[float, ...]:
    return (*(-level for level in reversed(positive)), *positive)


def _powers(bits: int) -> tuple[float, ...]:
    """±1, ±1/2, ±1/4, ... : 2^bits levels, none of them 0."""
    return _symmetric([2.0**-e for e in reversed(range(2 ** (bits - 1)))])


# Lloyd-Max: the levels with the least mean squared error for a standard normal number (tests/wire/test_tables.py)
_NORMAL = {
    1: [0.7978845834732056],
    2: [0.4527800381183624, 1.5104175806045532],
    3: [0.2450941801071167, 0.7560052871704102, 1.3439092636108398, 2.1519455909729004],
    4: [
        0.12839503586292267,
        0.38804829120635986,
        0.6567591428756714,
        0.9423404335975647,
        1.2562311887741089,
        1.6180464029312134,
        2.069017171859741,
        2.7325894832611084,
    ],
}

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table("sign", 1, 1, (-1.0, 1.0)),
        Table("ternary", 2, 0, (-1.0, 0.0, 1.0)),
        Table("uniform2", 3, 2, _uniform(2)),
        Table("uniform4", 4, 4, _uniform(4)),
        Table("uniform8", 5, 8, _uniform(8)),
        *(Table(f"log{bits}bit", 4 + bits, bits, _powers(bits)) for bits in (2, 3, 4)),
        *(Table(f"normal{bits}", 8 + bits, bits, _symmetric(_NORMAL[bits])) for bits in (1, 2, 3, 4)),
    )
}
_BY_CODE = {table.code: table for table in TABLES.values()}


def table_named(name: str) -> Table:
    """The table of this name."""
    if name not in TABLES:
        raise WireError(f"Unknown table of levels {name!r}; allowed are {', '.join(TABLES)}.")
    return TABLES[name]


def table_of_code(code: int) -> Table:
    """The table with this number on the wire."""
    if code not in _BY_CODE:
        listed = ", ".join(f"{table.code} ({table.name})" for table in TABLES.values())
        raise WireError(f"Unknown table of levels {code}; allowed are {listed}.")
    return _BY_CODE[code]
