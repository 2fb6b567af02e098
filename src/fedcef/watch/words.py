"""Numbers and curves as short text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"


def draw_sparkline(values: Sequence[float], width: int) -> str:
    """A curve in one line of text, from its smallest value to its largest; a long one by means of its parts."""
    if not values:
        return ""
    if len(values) > width:
        edges = [i * len(values) // width for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(values), max(values)
    if high <= low:
        return BLOCKS[0] * len(values)
    return "".join(BLOCKS[round((value - low) / (high - low) * (len(BLOCKS) - 1))] for value in values)


def format_duration(seconds: float) -> str:
    """0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_measure(name: str, value: float) -> str:
    """A measure as people say it: accuracies and densities in percent."""
    return f"{100 * value:.2f}%" if name in ("accuracy", "density") else f"{value:.4g}"
