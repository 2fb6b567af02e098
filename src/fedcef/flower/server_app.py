"""The server as a Flower app."""

from __future__ import annotations

import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcef.core.errors import FedcefError
from fedcef.flower.run_server import run_server

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run to the end; a mistake is told in one sentence."""
    try:
        run_server(grid, context.run_config)
    except FedcefError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        raise error.with_traceback(None) from None
