"""What is told of clients, as text."""

SHARES = ("distance", "divergence")
"""Measures that are small numbers; the others count something, or are targets."""


def format_measure(name: str, value: float) -> str:
    """A measure of `Holdings`: counts whole where they are, shares with three places.

    >>> format_measure("samples", 1234.0), format_measure("samples", 3.25), format_measure("distance", 0.5)
    ('1,234', '3.2', '0.500')
    """
    if name in SHARES:
        return f"{value:.3f}"
    if name == "mean target":
        return f"{value:.3g}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
