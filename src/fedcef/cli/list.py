"""fedcef list: the names that settings can have."""

from __future__ import annotations

from inspect import getdoc
from typing import get_args

import typer
from rich.table import Table

from fedcef.cli.terminal import console, tell

STORES = {
    "auto": "The table where it is small, or where all clients take part in every round; otherwise memory.",
    "table": "A row for every client, on the device.",
    "memory": "Rows of the clients that have taken part, on the device.",
    "host": "The same in the host's memory, for a GPU.",
    "disk": "The same in a file.",
}
CODES = {
    "exact": "Every number as it is.",
    "bfloat16": "Numbers rounded to 16 bits, which changes results.",
    "nonzeros": "Only the numbers that are not zero, exactly.",
}
WORKERS = {
    "auto": "distributed under torchrun, local otherwise.",
    "local": "This process.",
    "distributed": "The processes that torchrun started.",
    "ray": "Actors of Ray; ray:4 for four of them.",
}
MODES = {
    "rounds": "The server waits for a cohort.",
    "async": "The server steps whenever network.buffer replies are in.",
}


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(name="list")(list_)


def list_() -> None:
    """Show all names: methods, compressors, data sets and more.

    Also regularisers, schedules, rules of aggregation, updates, partitions, models, gradient oracles, stores, workers,
    networks and experiments, each with a line on what it is.
    """
    from fedcef.algorithms import ALGORITHMS
    from fedcef.compressors import COMPRESSORS
    from fedcef.core.aggregation import AGGREGATIONS
    from fedcef.core.schedules import SCHEDULES
    from fedcef.core.training import OracleName
    from fedcef.optimizers import LOCAL_UPDATES, SERVER_UPDATES
    from fedcef.oracles.oracle import ORACLES
    from fedcef.problems.catalog import DATA, DRAWN
    from fedcef.problems.clients.drawn import drawn
    from fedcef.problems.data.datasets import DATASETS
    from fedcef.problems.data.partitions import PARTITIONS
    from fedcef.problems.models import MODELS
    from fedcef.regularizers import REGULARIZERS
    from fedcef.runs.experiments import experiments as shipped
    from fedcef.simulation.network.presets import PRESETS

    described = {
        "algorithm.name": {name: _line(kind) for name, kind in ALGORITHMS.items()},
        "compressor.name": {name: _line(kind) for name, kind in COMPRESSORS.items()},
        "regularizer.name": {name: _line(kind) for name, kind in REGULARIZERS.items()},
        "local_schedule.name, server_schedule.name": {name: _line(kind) for name, kind in SCHEDULES.items()},
        "aggregation.name": {name: _line(kind) for name, kind in AGGREGATIONS.items()},
        "local_update.name": {name: _line(kind) for name, kind in LOCAL_UPDATES.items()},
        "server_update.name": {name: _line(kind) for name, kind in SERVER_UPDATES.items()},
        "data.name": {name: _line(kind) for name, kind in DATA.items()}
        | {name: info.description for name, info in DATASETS.items()},
        "data.partition": {name: _line(kind) for name, kind in PARTITIONS.items()} | {DRAWN: _line(drawn)},
        "model.name": {name: _line(kind) for name, kind in MODELS.items()},
        "oracle": {"auto": "What suits the model and the device."}
        | {name: _line(ORACLES[name]) for name in get_args(OracleName) if name in ORACLES},
        "store.name": STORES,
        "store.code": CODES,
        "workers": WORKERS,
        "network.mode": MODES,
        "network.preset": {
            name: f"{down:g} Mbit/s down, {up:g} Mbit/s up, {latency:g} ms."
            for name, (down, up, latency) in PRESETS.items()
        },
        "experiment": shipped(),
    }
    for title, entries in described.items():
        table = Table(
            title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2)
        )
        for name, line in entries.items():
            table.add_row(name, line)
        console.print(table)
        console.print()
    tell("Your own class is named by its import path:")
    tell("  --set algorithm.name=my_package.my_method:MyMethod")


def _line(thing: object) -> str:
    """The first paragraph of a docstring, in one line."""
    return (getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")
