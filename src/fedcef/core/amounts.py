"""Amounts of bytes as people write them."""

from __future__ import annotations

from typing import Any

UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1}


def as_bytes(amount: Any) -> int:
    """A number of bytes from a plain number or one with a unit: 300MB, 1.5 GB, 2e9."""
    unknown = ValueError("a number of bytes such as 300MB or 1e9")
    if isinstance(amount, bool) or not isinstance(amount, int | float | str):
        raise unknown
    text = str(amount).strip().lower()
    unit = next((unit for unit in UNITS if text.endswith(unit.lower())), "")
    try:
        return round(float(text[: len(text) - len(unit)]) * UNITS.get(unit, 1))
    except (ValueError, OverflowError):
        raise unknown from None
