"""Reading values by the number in a payload's value-type byte: this package's types, and those of others."""

from __future__ import annotations

from collections.abc import Callable

from fedcef.wire.extensions import FIRST, Extensions
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.values import number_formats
from fedcef.wire.values.levels import Levels, LevelTables
from fedcef.wire.values.powers import Powers
from fedcef.wire.values.values import LEVEL_TABLES, LEVELS, POWERS, Sent, Values

_READERS: dict[int, tuple[str, Callable[[Reader, int], Values]]] = {
    LEVELS: ("levels", Levels.read),
    LEVEL_TABLES: ("tables of levels", LevelTables.read),
    POWERS: ("powers of two", Powers.read),
}
_OTHERS: Extensions[Values] = Extensions("Value type")


def register_value_type(number: int, read: Callable[[Reader, int], Values], *, package: str) -> bytes:
    """Teach the decoder a value type of another package's, which any payload may then hold.

    Args:
        number: 192 to 255; the `code` of the values.
        read: makes so many values of what follows the package's name.
        package: what must be imported to have the type registered.

    Returns:
        The package's name in bytes, with which the encoded values begin.
    """
    return _OTHERS.register(number, read, package)


def read_values(reader: Reader, code: int, count: int) -> Sent:
    """`count` values of the form with this number: a tensor (count,) for plain numbers."""
    kind = number_formats.of_code(code)
    if kind is not None:
        size = count * kind.dtype.itemsize
        return number_formats.from_bytes(reader.take(size, f"{count} {kind.name} values"), kind)
    if code >= FIRST:
        values = _OTHERS.read(reader, code, count)
        if values.shape != (count,):
            raise WireError(f"Value type {code} gave values of shape {tuple(values.shape)}; {count} were announced.")
        return values
    if code not in _READERS:
        raise WireError(f"Unknown value type code {code}; allowed are {_listed()}.")
    return _READERS[code][1](reader, count)


def _listed() -> str:
    plain = {kind.code: kind.name for kind in number_formats.VALUE_TYPES.values()}
    names = plain | {code: name for code, (name, _) in _READERS.items()}
    return ", ".join(f"{code} ({name})" for code, name in names.items())
