"""fedcef deployment: what an operator does to the folder of a deployment's server, while the server is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcef.cli.terminal import tell

Folder = Annotated[Path, typer.Argument(help="The run folder of a deployment's server.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    group = typer.Typer(
        help="Look after the folder of a deployment's server.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command()(recover)
    app.add_typer(group, name="deployment")


def recover(folder: Folder) -> None:
    """Go on from an older copy of the folder: clients go back to the round that it holds.

    For a server whose disk was lost, and whose clients have seen later rounds.  What they did in those is given up.
    """
    from fedcef.deployment.going_back import go_back
    from fedcef.runs.kinds import resume_command

    round_ = go_back(folder)
    tell(f"The run goes on after {round_} rounds, and its clients go back to there.  Resume: {resume_command(folder)}")
