"""fedcef list: the names that settings can have."""

from __future__ import annotations

from inspect import getdoc

import typer
from rich.table import Table

from fedcef.cli.terminal import console, tell


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(name="list")(list_)


def list_() -> None:
    """Show all names: methods, compressors, data sets and more.

    Also regularisers, schedules, updates, partitions, models and experiments, each with a line on what it is.
    """
    from fedcef.algorithms import ALGORITHMS
    from fedcef.compressors import COMPRESSORS
    from fedcef.core.schedules import SCHEDULES
    from fedcef.optimizers import LOCAL_UPDATES, SERVER_UPDATES
    from fedcef.problems.catalog import DATA, DRAWN
    from fedcef.problems.clients.drawn import drawn
    from fedcef.problems.data.datasets import DATASETS
    from fedcef.problems.data.partitions import PARTITIONS
    from fedcef.problems.models import MODELS
    from fedcef.regularizers import REGULARIZERS
    from fedcef.runs.experiments import experiments as shipped

    described = {
        "algorithm.name": {name: _line(kind) for name, kind in ALGORITHMS.items()},
        "compressor.name": {name: _line(kind) for name, kind in COMPRESSORS.items()},
        "regularizer.name": {name: _line(kind) for name, kind in REGULARIZERS.items()},
        "local_schedule.name, server_schedule.name": {name: _line(kind) for name, kind in SCHEDULES.items()},
        "local_update.name": {name: _line(kind) for name, kind in LOCAL_UPDATES.items()},
        "server_update.name": {name: _line(kind) for name, kind in SERVER_UPDATES.items()},
        "data.name": {name: _line(kind) for name, kind in DATA.items()}
        | {name: info.description for name, info in DATASETS.items()},
        "data.partition": {name: _line(kind) for name, kind in PARTITIONS.items()} | {DRAWN: _line(drawn)},
        "model.name": {name: _line(kind) for name, kind in MODELS.items()},
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
    tell("A class of your own is named by its import path: --set algorithm.name=my_package.my_method:MyMethod")


def _line(thing: object) -> str:
    """The first paragraph of a docstring, in one line."""
    return (getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")
