"""fedcef compare: all variants of an experiment."""

from __future__ import annotations

from typing import Annotated

import typer

from fedcef.cli import completion
from fedcef.cli.shared_options import Changes, Out


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(compare)


def compare(
    experiment: Annotated[
        str, typer.Argument(help="An experiment with [[compare]] entries.", autocompletion=completion.experiment)
    ],
    set_: Changes = None,
    out: Out = None,
) -> None:
    """Run all variants of an experiment and compare them.

    Then write a table, a figure and an HTML page.  Variants whose run in --out is already finished are kept; an
    interrupted one is resumed.
    """
    from fedcef.cli.batch import Batch
    from fedcef.runs.experiments import load_settings
    from fedcef.runs.sweep import expand

    Batch.below(out, expand(load_settings(experiment, set_ or []).variants(), {})).carry_out()
