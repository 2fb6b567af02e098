"""The server as a Flower app."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from flwr.app import Context
from flwr.app.exception import AppExitException
from flwr.serverapp import Grid, ServerApp

from fedcef.core.errors import FedcefError
from fedcef.flower.run_server import run_server

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run to the end; what stops it is told in one sentence."""
    with told():
        run_server(grid, context.run_config)


@contextmanager
def told() -> Iterator[None]:
    """Tell what ends a server in one sentence, and let Flower do so too."""
    try:
        yield
    except FedcefError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        logging.getLogger("flwr").addFilter(_without_traceback)
        raise Ended(str(error)) from None


class Ended(AppExitException, FedcefError):
    """What ended a server, for Flower: the run has failed, with this sentence among its details.

    The code is one of those that Flower leaves for ServerApps; its own, 201, calls everything an unhandled exception.
    """

    exit_code = 249


def _without_traceback(record: logging.LogRecord) -> bool:
    """Flower logs what its ServerApp raised with a traceback; of ours the sentence is all that there is to know."""
    if record.exc_info and isinstance(record.exc_info[1], Ended):
        record.msg, record.args, record.exc_info = "The ServerApp has ended: %s", (str(record.exc_info[1]),), None
    return True
