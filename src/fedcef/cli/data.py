"""fedcef data: data sets in the cache folder."""

from __future__ import annotations

from typing import Annotated

import typer

from fedcef.cli.terminal import tell


def register(app: typer.Typer) -> None:
    """Add the group of commands to the app."""
    group = typer.Typer(help="Bring data sets into the cache folder.", no_args_is_help=True)
    group.command()(get)
    app.add_typer(group, name="data")


def get(name: Annotated[str, typer.Argument(help="Its name, as `fedcef list` shows it.")]) -> None:
    """Bring a data set into the cache folder (FEDCEF_DATA, by default the user's cache), verified by SHA-256."""
    from fedcef.problems.data.sources import fetch

    fetch(name, log=tell)
