"""fedcef deployment: what an operator does to the folder of a deployment's server, while the server is stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcef.cli.terminal import tell
from fedcef.core.errors import DivergedError

Folder = Annotated[Path, typer.Argument(help="The run folder of a deployment's server.")]
Number = Annotated[int, typer.Argument(min=0, help="A client's number.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    group = typer.Typer(
        help="Maintain the folder of a deployment's server.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command()(status)
    group.command()(recover)
    group.command()(key)
    group.add_typer(clients, name="clients")
    app.add_typer(group, name="deployment")


clients = typer.Typer(
    help="Show and change which client has which number.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@clients.command("list")
def list_(folder: Folder) -> None:
    """Print the clients' numbers and names."""
    from fedcef.deployment.roster import opened_roster

    with opened_roster(folder, writes=False) as roster:
        for number, name in roster.everyone().items():
            print(f"{number}\t{name}")


@clients.command()
def free(folder: Folder, number: Number) -> None:
    """Free a number for another client, for the rest of the run."""
    from fedcef.deployment.roster import opened_roster

    with opened_roster(folder) as roster:
        had = roster.free(number)
    tell(f"Client {number} is free; {had} had it." if had else f"Client {number} was free already.")


@clients.command()
def assign(
    folder: Folder,
    number: Number,
    name: Annotated[str, typer.Argument(help="A key's name, or the file of a public key (node-0.pub).")],
) -> None:
    """Assign a number to a key, even if another has it."""
    from fedcef.deployment.keys import name_of
    from fedcef.deployment.roster import opened_roster

    with opened_roster(folder) as roster:
        roster.assign(number, name_of(name))
    tell(f"Client {number} is {name_of(name)}.")


def key(
    file: Annotated[str, typer.Argument(help="The file of a public key in OpenSSH's format, such as node-0.pub.")],
) -> None:
    """Print the name of a key.

    It is what deployment.keys and `clients assign` take.
    """
    from fedcef.deployment.keys import name_of

    print(name_of(file))


def status(folder: Folder) -> None:
    """Show the state of a run; exits with 0 if no action is needed.

    That is so while a server works on it, and when it is finished.  With 1 it was stopped, or nothing came for longer
    than its deadline; with 3 it has diverged, and to resume it would not help.
    """
    from fedcef.deployment.health import health_of

    found = health_of(folder)
    tell(found.sentence)
    if not found.is_good:
        sys.exit(DivergedError.exit_code if found.state == "diverged" else 1)


def recover(folder: Folder) -> None:
    """Continue from an older copy of the folder.

    For a server whose disk was lost and whose clients have seen later rounds: they return to the round that the folder
    holds, and their later work is discarded.
    """
    from fedcef.deployment.going_back import go_back
    from fedcef.runs.kinds import resume_command

    round_ = go_back(folder)
    tell(
        f"The run continues after {round_} rounds; its clients return to that round.  Resume: {resume_command(folder)}"
    )
