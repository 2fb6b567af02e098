"""A curve's look as a small SVG picture, for tables and legends of the page."""

import math

from fedcef.report.figures.style import Look

CORNERS = {  # symbol -> corners, angle of the first one in degrees (0 is right, 90 is up)
    "square": (4, 45.0),
    "triangle-up": (3, 90.0),
    "diamond": (4, 0.0),
    "triangle-down": (3, -90.0),
    "pentagon": (5, 90.0),
}


def swatch(look: Look) -> str:
    """The line with its marker, once in the colour for light pages and once in that for dark ones."""
    return (
        '<svg class="swatch" viewBox="0 0 36 14" aria-hidden="true">'
        f'<g class="on-light">{_drawing(look, look.color)}</g><g class="on-dark">{_drawing(look, look.dark)}</g></svg>'
    )


def _drawing(look: Look, color: str) -> str:
    dash = f' stroke-dasharray="{" ".join(f"{2.2 * part:g}" for part in look.dash)}"' if look.dash else ""
    line = f'<path d="M0 7H36" stroke="{color}" stroke-width="2.2"{dash}/>'
    edge = f'fill="{color}" stroke="var(--paper)" stroke-width="1"'
    if look.symbol == "circle":
        return f'{line}<circle cx="18" cy="7" r="4.5" {edge}/>'
    if look.symbol == "cross":
        return f'{line}<path d="M16.4 2.2h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z" {edge}/>'
    count, first = CORNERS[look.symbol]
    angles = [math.radians(first + 360 * i / count) for i in range(count)]
    points = " ".join(f"{18 + 5.4 * math.cos(a):.1f},{7 - 5.4 * math.sin(a):.1f}" for a in angles)
    return f'{line}<polygon points="{points}" {edge}/>'
