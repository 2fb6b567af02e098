"""`fedcef.run`: a run from Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from fedcef.algorithms.algorithm import Algorithm
from fedcef.core.amounts import as_bytes
from fedcef.core.errors import ConfigError
from fedcef.core.precision import Precision
from fedcef.core.schedules import Constant, Schedule
from fedcef.problems.problem import Problem, Weighting
from fedcef.python.folder import run_in_folder
from fedcef.python.history import History, Measures, simulate
from fedcef.simulation.budget import Budget


def run(
    problem: Problem,
    algorithm: Algorithm,
    *,
    rounds: int = 100,
    seed: int = 0,
    eval_every: int = 10,
    batch_size: int = 64,
    clip_norm: float | None = None,
    clients_per_round: int | None = None,
    weighting: Weighting = "uniform",
    local_schedule: Schedule = Constant(),
    server_schedule: Schedule = Constant(),
    budget: int | str | None = None,
    oracle: Literal["auto", "loop", "stacked", "batched"] = "auto",
    precision: Precision = "float32",
    cuda_graphs: bool = True,
    watch: Callable[[Measures], None] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    label: str = "",
    snapshot_every: int = 10,
) -> History:
    """Train a problem's model by an algorithm, and return what happened.

    rounds, seed        how long, and what decides minibatches, cohorts and random compressors
    eval_every          rounds between evaluations; the first and the last round are always evaluated
    batch_size          samples of a local step, drawn with replacement; 0 = all that a client has
    clip_norm           largest norm of a client's gradient; None = no limit
    clients_per_round   how many take part in a round; None = all
    weighting           how clients count: "uniform", or "samples" by how many they have
    local_schedule, server_schedule   factors on the step sizes (`fedcef.core.schedules`)
    budget              all bytes of the run, e.g. "3MB": ratios then change from round to round
    oracle, precision, cuda_graphs    how gradients are computed
    watch               called with every evaluated record
    out                 a folder to keep the run in, for `fedcef plot` and `report` and to go on with it
    resume              go on with the run in `out`; one that is finished is read, and where there is none it begins
    label               what the run is called in reports
    snapshot_every      rounds between snapshots in `out`; 0 = none, then a run that was cut off begins again

    The regulariser is the problem's, and the compressor is fitted to the model's layers.  To compute on a GPU, give
    `problem.to("cuda")`.
    """
    if out is None and resume:
        raise ConfigError("resume goes on with the run in a folder; give the folder as `out`.")
    options: dict[str, Any] = {
        "seed": seed,
        "batch_size": batch_size,
        "clip_norm": clip_norm,
        "clients_per_round": clients_per_round,
        "weighting": weighting,
        "local_schedule": local_schedule,
        "server_schedule": server_schedule,
        "oracle": oracle,
        "precision": precision,
        "cuda_graphs": cuda_graphs,
        "budget": _budget(budget, rounds),
    }
    if out is not None:
        kept: dict[str, Any] = {"label": label, "snapshot_every": snapshot_every, "resume": resume, "watch": watch}
        return run_in_folder(
            Path(out), problem, algorithm, rounds=rounds, eval_every=eval_every, **kept, options=options
        )
    try:
        return simulate(problem, algorithm, rounds=rounds, eval_every=eval_every, watch=watch, **options)
    except KeyboardInterrupt as stop:
        stop.add_note("Interrupted: nothing is kept of a run in memory.  With out= a folder it could go on.")
        raise


def _budget(amount: int | str | None, rounds: int) -> Budget | None:
    if not amount:
        return None
    try:
        return Budget(as_bytes(amount), rounds)
    except ValueError as error:
        raise ConfigError(f"budget is {amount!r}; it must be {error}.") from None
