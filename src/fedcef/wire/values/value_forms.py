"""Reading values by the number in a payload's value-type byte."""

from __future__ import annotations

from collections.abc import Callable

from fedcef.wire.errors import WireError
from fedcef.wire.reader import Reader
from fedcef.wire.values import value_types
from fedcef.wire.values.levels import Levels, LevelTables
from fedcef.wire.values.powers import Powers
from fedcef.wire.values.values import LEVEL_TABLES, LEVELS, POWERS, Sent, Values

_READERS: dict[int, tuple[str, Callable[[Reader, int], Values]]] = {
    LEVELS: ("levels", Levels.read),
    LEVEL_TABLES: ("tables of levels", LevelTables.read),
    POWERS: ("powers of two", Powers.read),
}


def read_values(reader: Reader, code: int, count: int) -> Sent:
    """`count` values of the form with this number: a tensor (count,) for plain numbers."""
    kind = value_types.of_code(code)
    if kind is not None:
        size = count * kind.dtype.itemsize
        return value_types.from_bytes(reader.take(size, f"{count} {kind.name} values"), kind)
    if code not in _READERS:
        raise WireError(f"Unknown value type code {code}; allowed are {_listed()}.")
    return _READERS[code][1](reader, count)


def _listed() -> str:
    plain = {kind.code: kind.name for kind in value_types.VALUE_TYPES.values()}
    names = plain | {code: name for code, (name, _) in _READERS.items()}
    return ", ".join(f"{code} ({name})" for code, name in names.items())
