"""A table that fits its terminal: columns are left out before names are broken over lines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

UNBOUNDED = 1000
"""Columns of a terminal in which every table fits."""


@dataclass(frozen=True)
class Fitted:
    """A table whose less important columns are left out on a narrow terminal."""

    make: Callable[[Collection[str]], Table]
    """The table without the given columns."""
    dropped: Sequence[str]
    """The columns that can be left out, the first to go first."""
    names_them: bool = True
    """Whether a line below names the columns that are left out."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The widest table that fits, or the narrowest there is."""
        unbounded = options.update(max_width=UNBOUNDED)
        for count in range(len(self.dropped) + 1):
            table = self.make(self.dropped[:count])
            if Measurement.get(console, unbounded, table).maximum <= options.max_width:
                break
        yield table
        if count and self.names_them:
            yield Text(f"A wider terminal also shows: {', '.join(self.dropped[:count])}.", "dim")
