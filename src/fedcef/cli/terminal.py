"""What the commands print: sentences, progress, tables, and where the report is."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedcef.core.errors import ConfigError

if TYPE_CHECKING:
    from fedcef.runs.folder import Record
    from fedcef.runs.loop import Watcher
    from fedcef.runs.settings import Settings, Reference

console = Console(width=None if sys.stdout.isatty() else 110)
errors = Console(stderr=True)


def tell(line: str) -> None:
    """A plain line on standard output: no markup is read from it, no line is broken in it."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def say(sentence: str, style: str = "") -> None:
    """A plain sentence on standard error."""
    errors.print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def progress(config: Settings) -> Iterator[Watcher]:
    """A bar with round, accuracy, bytes and time left on a terminal; elsewhere nothing but notes."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[measure]}"),
        TextColumn("{task.fields[sent]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(config.label or config.name, total=config.rounds, measure="", sent="")

        def watch(record: Record) -> None:
            if "note" in record:
                say(record["note"], "yellow")
                return
            if "accuracy" in record:
                bar.update(task, measure=f"accuracy {100 * record['accuracy']:.1f}%")
            elif "objective" in record:
                bar.update(task, measure=f"objective {record['objective']:.4g}")
            sent = record["wire_up_bytes"] + record["wire_down_bytes"]
            bar.update(task, completed=record["round"], sent=f"{sent / 1e6:.1f} MB")

        yield watch


def show_table(folders: Sequence[Path]) -> None:
    from fedcef.report import load_runs
    from fedcef.report.data.table import table

    console.print(table(load_runs(folders)))


def show_report(folders: Sequence[Path], out: Path) -> None:
    """The table on the terminal, the figure and the page in `out`."""
    from fedcef.report import write_report

    if not folders:
        raise ConfigError("There are no runs to plot; give folders that `fedcef run` or `fedcef compare` wrote.")
    show_table(folders)
    for path in write_report(folders, out):
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
    from fedcef.report import frontier_table, load_runs, write_frontier
    from fedcef.report.data.frontier import frontier

    if not folders:
        raise ConfigError("There are no runs to plot; give folders that `fedcef run` or `fedcef frontier` wrote.")
    records = load_runs(folders)
    found = frontier(records, [(point.label, point.bytes, point.accuracy) for point in references])
    console.print(frontier_table(found))
    tell("● no setting with as few bytes is as accurate" + ("   ☆ reference, by its own count" if references else ""))
    for path in write_frontier(found, records, out):
        tell(f"Wrote {path}")
