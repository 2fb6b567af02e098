"""fedcef theory: the paper's theorem beside a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from fedcef.cli.shared_options import Changes
from fedcef.cli.terminal import console, tell

if TYPE_CHECKING:
    from fedcef.theory import Bound, Check


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(theory)


def theory(
    target: Annotated[
        str, typer.Argument(metavar="RUN_OR_EXPERIMENT", help="A run folder, a shipped experiment, or a .toml file.")
    ],
    set_: Changes = None,
    samples: Annotated[
        int, typer.Option("--samples", min=0, help="Samples of each client used to estimate L; 0 = all.")
    ] = 256,
    problem: Annotated[
        str | None,
        typer.Option("--problem", help="For a run from Python: the function that builds its problem, module:name."),
    ] = None,
) -> None:
    """Check a run against the convergence theorem of FedCEF's paper.

    Shows which conditions hold, step sizes that meet them, the bound, and what the run measured.
    """
    from fedcef.theory import check_theorem

    found = check_theorem(target, set_ or [], samples, problem)
    _show_estimates(found, samples)
    _show_conditions(found)
    _show_advice(found)
    _show_bound(found)


def _show_estimates(found: Check, samples: int) -> None:
    table = _table("estimated", "largest of all clients", "of the average")
    for where, curvature in found.curvatures.items():
        table.add_row(f"L {where}", f"{curvature.client:.4g}", f"{curvature.average:.4g}")
    if found.batch_size:
        title = f"σ²/B, B = {found.batch_size}"
        table.add_row(title, f"{found.variance:.4g}", "")
    console.print(table)
    share = "all samples" if samples == 0 else f"at most {samples} samples"
    tell(f"L: the largest |eigenvalue| of Hessians at these points, by power iteration on {share} of every client.")
    tell("This is a local estimate from below: L may be larger at other points.")


def _show_conditions(found: Check) -> None:
    table = _table("condition of Theorem 1", "value", "limit")
    table.add_column("met?")
    for condition in found.conditions:
        met = "yes" if condition.met else "[red]no[/red]"
        table.add_row(condition.what, condition.value, condition.limit, met)
    console.print(table)


def _show_advice(found: Check) -> None:
    setting, advice = found.setting, found.advice
    if setting is None or advice is None:
        tell("The compressor has no q below 1, so the theorem does not apply at any step size.")
        return
    tell(
        f"Step sizes that meet both: --set local_lr={advice.local_lr:g} --set server_lr={advice.server_lr:g}"
        f"   (η = {setting.mixing:g}, q = {setting.contraction:.4g}, K = {setting.local_steps}, L as estimated)"
    )
    if advice.bound is not None and found.bound is None:
        tell(f"With these and the same number of rounds the bound would be {_terms(advice.bound)}.")


def _show_bound(found: Check) -> None:
    if found.bound is not None:
        tell(f"Bound on the mean of ‖G‖²: {_terms(found.bound)}.")
    else:
        tell("A condition is not met: the theorem gives no bound for this run.")
    if found.advice is not None and found.advice.bound is not None and not found.optimum_known:
        tell("F* is taken as 0, a lower bound; on a convex problem a run with eval.optimum=true computes it.")
    measured = found.measured
    if measured is None:
        return
    some = ", each on some of the samples" if measured.on_some_samples else ""
    tell(f"Measured mean of ‖G‖²: {measured.mean:.4g}, over {measured.evaluated} of {measured.rounds} rounds{some}.")


def _terms(bound: Bound) -> str:
    parts = f"{bound.start:.3g} (start) + {bound.noise:.3g} (noise) + {bound.decoupling:.3g} (B_h)"
    return f"{bound.total:.4g} = {parts}"


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(first)
    for title in others:
        table.add_column(title, justify="right")
    return table
