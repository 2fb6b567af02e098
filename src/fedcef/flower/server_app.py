"""The server as a Flower app."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcef.cli.terminal import say
from fedcef.core.errors import FedcefError
from fedcef.flower.run_server import serve

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    try:
        serve(grid, context.run_config)
    except FedcefError as error:
        say(f"Error: {error}", "red")
        raise error.with_traceback(None) from None
