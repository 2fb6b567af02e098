"""What `fedcef --help` looks like: commands by what they are for, and examples."""

from __future__ import annotations

from collections.abc import Sequence

import click
from typer.core import TyperGroup

PARTS = {
    "Train": ("run", "compare", "sweep", "frontier"),
    "Look at runs": ("watch", "report", "plot", "theory"),
    "Use a model": ("export", "deployment"),
    "Look up": ("list", "data", "doctor", "version"),
}
"""The commands by what they are for, in the order of the help."""

EXAMPLES = (
    "fedcef run demo --set compressor.ratio=0.01",
    "fedcef compare demo --out runs/demo",
    "fedcef sweep demo --set 'seed=[0,1,2]' --jobs 2 --out runs/seeds",
    "fedcef report runs/seeds --open",
)


class Formatter(click.HelpFormatter):
    """Plain text as it is: Typer escapes brackets for a markup that is not used here."""

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Two columns, such as options and what they do."""
        super().write_dl([(name, text.replace("\\[", "[")) for name, text in rows], col_max, col_spacing)


click.Context.formatter_class = Formatter


class FrontDoor(TyperGroup):
    """The group of all commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands in their parts, each with one line; then examples."""
        longest = max(map(len, self.commands))
        for title, names in PARTS.items():
            with formatter.section(title):
                lines = [(name.ljust(longest), self.commands[name].get_short_help_str(200)) for name in names]
                formatter.write_dl(lines)
        with formatter.section("Examples"):
            for example in EXAMPLES:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")
