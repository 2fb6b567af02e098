"""What all figures and the page share: the look of each curve."""

from dataclasses import dataclass

# Okabe and Ito's colours (safe for colour-blind readers), with lighter twins for dark backgrounds.
COLORS = (
    ("#0072b2", "#4ba6dd"),
    ("#d55e00", "#f0813a"),
    ("#009e73", "#2fc79a"),
    ("#b8548c", "#dd8fbb"),
    ("#d08c00", "#edb73c"),
    ("#3a3a3a", "#d6d6d6"),
    ("#2f9fdc", "#8fd0f5"),
    ("#7a5c3e", "#c2a27f"),
)
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (5, 1.5, 1, 1.5), (1.5, 1.2), (8, 2))  # in line widths
MARKERS = (
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
    ("p", "pentagon"),
)


@dataclass(frozen=True)
class Look:
    """How a curve is drawn."""

    color: str
    dark: str  # the colour on dark backgrounds
    dash: tuple[float, ...]
    marker: str  # matplotlib's name
    symbol: str  # plotly's name


def choose_look(index: int) -> Look:
    """The look of the curve at a position; the numbers of colours, dashes and markers share no factor: 280 looks."""
    color, dark = COLORS[index % len(COLORS)]
    marker, symbol = MARKERS[index % len(MARKERS)]
    return Look(color, dark, DASHES[index % len(DASHES)], marker, symbol)
