"""The command line: its commands, each in a file of its own, and how they leave.

What a command needs is imported when it runs: `fedcef --help` and Tab do not wait for torch.
"""

from __future__ import annotations

import errno
import sys
import warnings
from typing import Annotated

import typer

from fedcef.cli import (
    compare,
    data,
    deployment,
    doctor,
    export,
    frontier,
    plot,
    report,
    run,
    sweep,
    theory,
    version,
    watch,
)
from fedcef.cli import list as list_
from fedcef.cli.front import FrontDoor
from fedcef.cli.terminal import say
from fedcef.core.errors import DataNote, EndedElsewhere, FedcefError
from fedcef.core.memory import keep_freed_memory

COMMANDS = (
    *(run, compare, sweep, frontier, watch, plot, report, export, theory, list_),
    *(data, deployment, doctor, version),
)

_RIGHTS = "change its permissions, or choose another folder"
REFUSALS = {
    errno.ENOSPC: ("written", "make room on its disk"),
    errno.EDQUOT: ("written", "make room in your quota"),
    errno.EFBIG: ("written", "raise the limit on a file's size (ulimit -f)"),
    errno.EROFS: ("written", "choose another folder"),
    errno.EACCES: ("opened", _RIGHTS),
    errno.EPERM: ("opened", _RIGHTS),
    errno.EIO: ("read or written", "check its disk"),
}
"""What the system refuses for reasons that a user can mend: what cannot be done with a file, and what to do."""

app = typer.Typer(
    cls=FrontDoor,
    help="Composite federated learning over low-bandwidth networks.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in COMMANDS:
    command.register(app)


@app.callback()
def front(
    version_: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=version.show, help="Show the version and exit.")
    ] = False,
) -> None:
    """Composite federated learning over low-bandwidth networks."""


def main() -> None:
    """Run the command line; a mistake or a full disk is one sentence and an exit code, never a traceback."""
    keep_freed_memory()
    warnings.simplefilter("ignore", DataNote)  # it is among the notes of the run
    try:
        app()
    except FedcefError as error:
        if not isinstance(error, EndedElsewhere):  # the process that failed has said it
            say(f"Error: {error}", "red")
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        done, advice = REFUSALS[error.errno]
        say(f"Error: {error.filename or 'A file'} cannot be {done}: {error.strerror}; {advice}.", "red")
        sys.exit(FedcefError.exit_code)
