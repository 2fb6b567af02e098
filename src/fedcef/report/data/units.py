"""Units of axes and columns, and numbers in them."""

import math

from fedcef.core.amounts import byte_unit

DURATIONS = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"))


def axis_unit(low: float, high: float, log: bool) -> tuple[float, str]:
    """(bytes per unit, unit) of an axis of bytes: by its end, or by its geometric middle when logarithmic."""
    return byte_unit(math.sqrt(low * high) if log and low > 0 else high)


def unit_of(axis: str, low: float, high: float, log: bool) -> tuple[float, str]:
    """The size and the name of the unit of any x axis; rounds have none."""
    if axis.endswith("bytes"):
        return axis_unit(low, high, log)
    if axis == "round":
        return 1.0, ""
    return next(((size, name) for size, name in DURATIONS if high >= 3 * size), (1.0, "s"))


def format_number(value: float) -> str:
    """A number for a table, three or more digits that matter: 1,234 / 123 / 12.3 / 1.23 / 0.123."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}" if digits <= 5 else f"{value:.2e}"
