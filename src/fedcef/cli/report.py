"""fedcef report: one page about several runs, and its curves as figures."""

from __future__ import annotations

import webbrowser
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from fedcef.cli.shared_options import RunFolders, default_folder
from fedcef.cli.terminal import say, show_table, tell
from fedcef.core.amounts import format_bytes
from fedcef.core.errors import ConfigError

AXES = {
    "wire": "wire_bytes",
    "paper": "paper_bytes",
    "rounds": "round",
    "wall": "wall_s",
    "network": "network_s",
    "clock": "sim_s",
}


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(report)


def report(
    runs: RunFolders,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page to write; by default report.html beside the runs, as plot has it."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="A folder for the curves as PNG, PDF and SVG, one column wide.")
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            "--against",
            help="The axis of page and figures: wire, paper, rounds, wall, network, or clock for simulated time.",
        ),
    ] = "wire",
    uplink: Annotated[float, typer.Option("--uplink", help="Mbit/s of a client's simulated uplink.")] = 1.0,
    downlink: Annotated[float, typer.Option("--downlink", help="Mbit/s of its downlink.")] = 10.0,
    latency: Annotated[float, typer.Option("--latency", help="Milliseconds a round waits for the network.")] = 50.0,
    computing: Annotated[
        bool, typer.Option("--computing", help="Count the time to compute, per client, in network time.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Write one page that compares runs.

    The page needs no network and no other file.
    """
    from fedcef.report import draw_figures, find_runs, load_runs, write_page
    from fedcef.report.data.link_time import ClientLink

    if against not in AXES:
        raise ConfigError(f"--against is {against!r}; it must be one of {', '.join(AXES)}.")
    if not (0 < uplink < inf and 0 < downlink < inf and 0 <= latency < inf):
        raise ConfigError("--uplink and --downlink must be numbers above 0 Mbit/s, and --latency at least 0 ms.")
    out = out or default_folder(runs) / "report.html"
    found = {path: find_runs(path) for path in runs}
    for path, inside in found.items():
        if not inside:
            raise ConfigError(f"{path} holds no runs; give folders that `fedcef run` or `fedcef compare` wrote.")
    folders = [folder for inside in found.values() for folder in inside]
    link = ClientLink(uplink, downlink, latency, computing)
    records = load_runs(folders)
    show_table(folders)
    if out == default_folder(runs) / "report.html":
        out.parent.mkdir(parents=True, exist_ok=True)
    write_page(records, out, link=link, against=AXES[against])
    tell(f"Wrote {out} ({format_bytes(out.stat().st_size)})")
    if figures is not None:
        for path in draw_figures(records, figures, AXES[against], link):
            tell(f"Wrote {path}")
    if open_ and not webbrowser.open(out.resolve().as_uri()):
        say(f"There is no browser to show it here; open {out.resolve()} where there is one.", "yellow")
