"""fedcef watch: runs in progress."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcef.cli.shared_options import Track
from fedcef.cli.terminal import console, say, tell
from fedcef.core.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(watch)


def watch(
    run: Annotated[Path, typer.Argument(help="A run folder, or a folder that holds run folders.")],
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Also serve the report to this machine's browser, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="With --serve: the port; by default a free one.")
    ] = None,
    track: Track = None,
) -> None:
    """Follow runs in progress, in a terminal or a browser.

    Ends when the runs end, or on Ctrl-C.
    """
    from fedcef.trackers import Tracking, open_trackers
    from fedcef.watch import Site, Watched, draw_screen, follow

    if once and serve:
        raise ConfigError("--once and --serve exclude each other; give one of them.")
    if port is not None and not serve:
        raise ConfigError("--port is for --serve; add --serve, or leave it out.")
    open_trackers(track or [])  # a missing package is told before anything is shown

    def listener(folder: Path) -> Tracking | None:
        return Tracking(open_trackers(track), folder, lambda sentence: say(sentence, "yellow")) if track else None

    watched = Watched(run, listener)
    try:
        if once:
            console.print(draw_screen(watched.runs))
        elif serve:
            with Site(run).served(port or 0) as address:
                tell(f"Serving at {address} until Ctrl-C")
                follow(watched, console, forever=True)
        else:
            follow(watched, console)
    except KeyboardInterrupt:
        sys.exit(0 if watched.over else 130)
    finally:
        watched.close()
