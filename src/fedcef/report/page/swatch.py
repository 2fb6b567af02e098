"""A curve's look as a small picture, for tables and legends of the page: what its SVG needs."""

import math

from fedcef.report.data.looks import Look

CORNERS = {  # symbol -> corners, angle of the first one in degrees (0 is right, 90 is up)
    "square": (4, 45.0),
    "triangle-up": (3, 90.0),
    "diamond": (4, 0.0),
    "triangle-down": (3, -90.0),
    "pentagon": (5, 90.0),
}


def dashes_of(look: Look) -> str:
    """The line's dashes as SVG writes them; "" for a line without gaps."""
    return " ".join(f"{2.2 * part:g}" for part in look.dash)


def outline_of(symbol: str) -> str:
    """The corners of a marker in the middle of the picture."""
    count, first = CORNERS[symbol]
    angles = [math.radians(first + 360 * i / count) for i in range(count)]
    return " ".join(f"{18 + 5.4 * math.cos(a):.1f},{7 - 5.4 * math.sin(a):.1f}" for a in angles)
