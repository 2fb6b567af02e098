"""fedcef version: which one this is."""

from __future__ import annotations

import typer

import fedcef
from fedcef.cli.terminal import tell


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(version)


def version() -> None:
    """Show the version."""
    tell(fedcef.__version__)


def show(asked: bool) -> None:
    """Show the version and end, if that was asked for."""
    if asked:
        version()
        raise typer.Exit
