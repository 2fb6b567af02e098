"""fedcef sweep: every combination of lists of settings."""

from __future__ import annotations

from typing import Annotated

import typer

from fedcef.cli import completion
from fedcef.cli.shared_options import Jobs, Lists, Only, Out


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(sweep)


def sweep(
    experiments: Annotated[
        list[str],
        typer.Argument(help="Names of shipped experiments, or .toml files.", autocompletion=completion.experiment),
    ],
    set_: Lists = None,
    only: Only = None,
    jobs: Jobs = 1,
    out: Out = None,
    paper: Annotated[bool, typer.Option("--paper", help="Also draw the paper's figures.")] = False,
    dry: Annotated[bool, typer.Option("--dry", help="List the runs without starting them.")] = False,
) -> None:
    """Run every combination of the lists given by --set.

    They are combined with all variants of the experiments.  Then write a table with the mean over the seeds, a figure
    and an HTML page.  Runs in --out that are finished are kept; interrupted ones are resumed.
    """
    from fedcef.cli.batch import Batch
    from fedcef.runs.sweep import plan

    batch = Batch.below(out, plan(experiments, set_ or [], only or []))
    if dry:
        batch.show()
    else:
        batch.carry_out(jobs, paper)
