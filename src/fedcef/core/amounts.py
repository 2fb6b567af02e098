"""Amounts of bytes, read as people write them and written as people read them; a kB is 1000 bytes."""

from __future__ import annotations

from numbers import Real
from typing import Any

UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1}


def as_bytes(amount: Any) -> int:
    """A number of bytes from a plain number or one with a unit: 300MB, 1.5 GB, 2e9."""
    unknown = ValueError("a number of bytes such as 300MB or 1e9")
    if isinstance(amount, bool) or not isinstance(amount, Real | str):
        raise unknown
    text = str(amount).strip().lower()
    unit = next((unit for unit in UNITS if text.endswith(unit.lower())), "")
    try:
        return round(float(text[: len(text) - len(unit)]) * UNITS.get(unit, 1))
    except (ValueError, OverflowError):
        raise unknown from None


def byte_unit(typical: float) -> tuple[int, str]:
    """(bytes per unit, unit) in which `typical` reads as a number of at least one."""
    return next(((size, unit) for unit, size in UNITS.items() if typical >= size), (1, "B"))


def format_bytes(count: float) -> str:
    """A number of bytes to three digits, in the unit that suits it: 999 B, 12.3 kB, 1.50 GB."""
    size, unit = byte_unit(count)
    digits = 0 if size == 1 else max(0, 3 - len(str(int(count / size))))
    return f"{count / size:.{digits}f} {unit}"
