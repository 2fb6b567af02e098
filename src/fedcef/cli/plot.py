"""fedcef plot: the table, the figure and the page of runs that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcef.cli.shared_options import RunFolders, default_folder
from fedcef.cli.terminal import show_frontier, show_paper, show_report, tell


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(plot)


def plot(
    runs: RunFolders,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder to write to; by default that of the runs, or report/ for several."),
    ] = None,
    against_density: Annotated[
        bool, typer.Option("--tradeoff", help="Also draw accuracy against density, one line per regulariser.")
    ] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="Draw the paper's figures instead: accuracy and loss against GB.")
    ] = False,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Draw accuracy against all bytes sent instead, one point per setting.")
    ] = False,
    references: Annotated[
        str | None, typer.Option("--references", metavar="EXPERIMENT", help="Whose [[reference]] points to draw there.")
    ] = None,
) -> None:
    """Draw the table, the figure and the HTML page for runs."""
    from fedcef.report import draw_tradeoff, find_runs, load_runs
    from fedcef.runs.experiments import load_settings

    folders = [folder for path in runs for folder in find_runs(path)]
    out = out or default_folder(runs)
    if paper:
        show_paper(folders, out)
    elif frontier or references:
        show_frontier(folders, out, load_settings(references).reference if references else ())
    else:
        show_report(folders, out)
    if against_density:
        draw_tradeoff(load_runs(folders), out / "tradeoff.png")
        tell(f"Wrote {out / 'tradeoff.png'}")
