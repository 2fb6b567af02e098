"""What the commands print: sentences, tables, and where the report is."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fedcef.core.errors import ConfigError, RunError

if TYPE_CHECKING:
    from fedcef.runs.settings import Reference

console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 110)
errors = Console(stderr=True)


def tell(line: str) -> None:
    """A plain line on standard output: no markup is read from it, no line is broken in it."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def say(sentence: str, style: str = "") -> None:
    """A plain sentence on standard error."""
    errors.print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)


def show_table(folders: Sequence[Path]) -> None:
    """The table that compares runs, on the terminal."""
    from fedcef.report import load_runs, make_table

    console.print(make_table(load_runs(folders)))


def show_report(folders: Sequence[Path], out: Path, page: bool = True) -> None:
    """The table on the terminal, the figure and, unless another will write it, the page in `out`."""
    from fedcef.report import write_report

    if not folders:
        raise ConfigError("There are no runs to plot; give folders that `fedcef run` or `fedcef compare` wrote.")
    show_table(folders)
    for path in write_report(folders, out, page):
        tell(f"Wrote {path}")


def show_paper(folders: Sequence[Path], out: Path) -> None:
    """The paper's figures and their page in `out`."""
    from fedcef.report import write_paper

    if not folders:
        raise ConfigError("There are no runs to plot; give folders that `fedcef run` or `fedcef sweep` wrote.")
    for path in write_paper(folders, out):
        tell(f"Wrote {path}")


def show_frontier(folders: Sequence[Path], out: Path, references: Sequence[Reference] = ()) -> None:
    """Accuracy against bytes: the table on the terminal, the figure, the page and a CSV file in `out`."""
    from fedcef.report import find_frontier, load_runs, make_frontier_table, write_frontier, write_page

    if not folders:
        raise ConfigError("There are no runs to plot; give folders that `fedcef run` or `fedcef frontier` wrote.")
    records = load_runs(folders)
    try:
        found = find_frontier(records, [(point.label, point.bytes, point.accuracy) for point in references])
    except RunError:
        if out.is_dir():  # a page without a frontier is better than none
            write_page(records, out / "report.html")
        raise
    console.print(make_frontier_table(found))
    tell("● no setting with as few bytes is as accurate" + ("   ☆ reference, by its own count" if references else ""))
    if any(point.tie for point in found.points):
        tell("○ the same, but no better than a cheaper setting within one standard deviation over the seeds")
    for path in write_frontier(found, records, out):
        tell(f"Wrote {path}")
