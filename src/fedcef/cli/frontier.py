"""fedcef frontier: accuracy against all bytes sent."""

from __future__ import annotations

import typer

from fedcef.cli.shared_options import Experiment, Jobs, Lists, Only, Out
from fedcef.cli.terminal import tell


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(frontier)


def frontier(experiment: Experiment, set_: Lists = None, only: Only = None, jobs: Jobs = 1, out: Out = None) -> None:
    """Run all variants, then draw accuracy against all bytes sent.

    The runs are carried out as by `sweep`.  An experiment without [[compare]] entries gets a grid of ratios, values and
    downlinks.
    """
    from fedcef.cli.batch import Batch
    from fedcef.runs.experiments import load_settings
    from fedcef.runs.grid import default_grid, variants_or_grid
    from fedcef.runs.sweep import plan, split

    settings = load_settings(experiment, split(set_ or [])[0])
    runs = plan([experiment], set_ or [], only or [], variants_or_grid)
    if not settings.compare:
        tell(f"{settings.name} has no [[compare]] entries; a default grid is used instead:")
        tell("; ".join(variant.label for variant in default_grid(settings)))
    Batch.below(out, runs).carry_out(jobs, frontier=settings.reference)
