"""`fedcef.run`: a run from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import COMPRESSORS, Compressor
from fedcef.core.aggregation import Aggregation, Mean
from fedcef.core.attack import Attack
from fedcef.core.errors import ConfigError
from fedcef.core.network import Network
from fedcef.core.parts import make
from fedcef.core.precision import Precision
from fedcef.core.schedules import Constant, Schedule
from fedcef.core.training import Batches, OracleName, Stopping, StoreOptions, Training, Weighting
from fedcef.problems.fitting import fitted
from fedcef.problems.metrics import Whole
from fedcef.problems.problem import Problem
from fedcef.python.folder import run_in_folder
from fedcef.python.history import History, Measures
from fedcef.runs.along import is_first
from fedcef.runs.loop import Loop, Watcher, takes_model
from fedcef.runs.measures import Measuring
from fedcef.runs.reader import Record
from fedcef.runs.sinks import MemorySink
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.workers import together


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a run in memory; `history` holds what was recorded until then."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history


def run(
    problem: Problem,
    algorithm: Algorithm,
    *,
    rounds: int = 100,
    seed: int = 0,
    eval_every: int = 10,
    eval_clients: int = 0,
    metrics: str | Whole | Sequence[str | Whole] = (),
    per_client: bool = False,
    stop: Stopping | Mapping[str, Any] | str | None = None,
    batch_size: int = 64,
    batches: Batches = "drawn",
    clip_norm: float | None = None,
    clients_per_round: int | None = None,
    weighting: Weighting = "uniform",
    aggregation: Aggregation | Mapping[str, Any] | str = Mean(),
    local_schedule: Schedule | str = Constant(),
    server_schedule: Schedule | str = Constant(),
    compressor: Compressor | str | None = None,
    budget: int | str | None = None,
    averaging: float = 0.0,
    network: Network | Mapping[str, Any] | None = None,
    attack: Attack | Mapping[str, Any] | str | None = None,
    oracle: OracleName = "auto",
    precision: Precision = "float32",
    micro_batch: int = 0,
    compile: bool = False,
    cuda_graphs: bool = True,
    store: StoreOptions | Mapping[str, Any] | str = StoreOptions(),
    cohort_chunk: int = 0,
    workers: str = "auto",
    watch: Callable[[Measures], None] | Callable[[Measures, nn.Module], None] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    label: str = "",
    snapshot_every: int = 10,
) -> History:
    """Train a problem's model by an algorithm, and return what happened.

    The options are those of `fedcef.Training`, where each is explained and checked.  The regulariser is the problem's,
    and the compressor is fitted to the model's layers.  To compute on a GPU, give `problem.to("cuda")`.

    Args:
        problem: What is minimised: a model, a loss, every client's data and a regulariser.
        algorithm: The method, with its step sizes and compressor.
        rounds: How long.
        seed: What decides minibatches, cohorts and random compressors.
        eval_every: Rounds between evaluations; the first and the last round are always evaluated.
        eval_clients: Over how many clients, always the same ones, the loss and its gradient are taken; 0 = all, or
            1,000 where there are more than 16,384.
        metrics: Further measures on the test set: names such as "r2" or "perplexity" (docs/data.md), or functions of
            all outputs and targets that return one number.
        per_client: Whether to record how unlike the clients are in accuracy, or in loss without classes.
        stop: When to end early, e.g. {"measure": "test_loss", "patience": 5}: after so many evaluations in a row that
            were no better; None = never.
        batch_size: Samples of a local step; 0 = all that a client has.
        batches: How they are chosen: "drawn" with replacement, or in "epochs".
        clip_norm: Largest norm of a client's gradient; None or 0 = no limit.
        clients_per_round: How many take part in a round; None or 0 = all.
        weighting: How clients count: "uniform", or "samples" by how many they have.
        aggregation: What the server makes of the clients' vectors: "mean", or a rule that bounds what a few can do,
            such as "median" or {"name": "trimmed_mean", "trim": 0.1} (docs/robustness.md).
        local_schedule: A factor on local_lr (`fedcef.core.schedules`), or its name.
        server_schedule: A factor on server_lr, likewise.
        compressor: In place of the algorithm's; by name with its defaults, and "auto" is chosen for the budget.
        budget: All bytes of the run, e.g. "3MB": ratios then change from round to round.
        averaging: By what factor the weight of a round's model falls with each further round, in the running mean that
            is returned; 0 = the last round's model.
        network: What the clients' links are like, e.g. {"preset": "lte"}: records then have a clock, and clients may
            come too late (docs/network.md); None = no clock.
        attack: Clients that lie, e.g. "sign_flip" or {"name": "scaling", "share": 0.1}, to see what a rule is worth.
        oracle: How gradients are computed.
        precision: The arithmetic of gradients.
        micro_batch: How many samples of a step go through the model at a time; 0 = all.
        compile: Whether torch.compile makes kernels for the model.
        cuda_graphs: Whether a GPU replays a recording of the round.
        store: Where clients' states are kept: "table", "memory", "host" or "disk", or a section with more options.
        cohort_chunk: How many of a cohort's clients are in memory at a time; 0 = all.
        workers: Who does the clients' work: "local", "distributed" (the default under torchrun), "ray" or "ray:4".
        watch: Called with every evaluated record and, if it takes two arguments, a copy of the model as it is then.
        out: A folder to keep the run in, for `fedcef plot` and `report` and to resume it.
        resume: Continue the run in `out`; a finished one is read, or extended if `rounds` is more than it has,
            and where there is none it begins.
        label: What the run is called in reports.
        snapshot_every: Rounds between snapshots in `out`; 0 = none, then a run that was cut off begins again.

    Returns:
        The records of the evaluated rounds, and the trained parameters.

    Example:
        >>> history = run(problem, FedCEF(local_lr=0.1, compressor=TopK(ratio=0.01)), rounds=100)
    """
    if out is None and resume:
        raise ConfigError("resume continues the run in a folder; give the folder as `out`.")
    if watch is not None and not callable(watch):
        raise ConfigError(f"watch is {watch!r}; it must be a function of a record, or of a record and the model.")
    options: dict[str, Any] = {
        "rounds": rounds,
        "seed": seed,
        "eval": {"every": eval_every, "clients": eval_clients, "metrics": metrics, "per_client": per_client},
        "stop": stop,
        "batch_size": batch_size,
        "batches": batches,
        "clip_norm": clip_norm,
        "clients_per_round": clients_per_round,
        "weighting": weighting,
        "aggregation": aggregation,
        "local_schedule": local_schedule,
        "server_schedule": server_schedule,
        "budget": budget,
        "averaging": averaging,
        "network": network,
        "attack": attack,
        "oracle": oracle,
        "precision": precision,
        "micro_batch": micro_batch,
        "compile": compile,
        "cuda_graphs": cuda_graphs,
        "store": store,
        "cohort_chunk": cohort_chunk,
        "workers": workers,
        "snapshot_every": snapshot_every,
    }
    training = Training(**options)

    def seen(record: Record, *model: nn.Module) -> None:
        if watch is not None and "objective" in record and is_first():
            watch(dict(record), *model)

    def seen_with_model(record: Record, model: nn.Module) -> None:
        seen(record, model)

    watcher: Watcher = seen_with_model if watch is not None and takes_model(watch) else seen
    if compressor is not None and isinstance(algorithm, Algorithm):
        named = make("compressor", COMPRESSORS, {"name": compressor}) if isinstance(compressor, str) else compressor
        algorithm = replace(algorithm, compressor=named)
    algorithm = fitted(problem, algorithm, training.rounds)
    with together():
        if out is not None:
            return run_in_folder(Path(out), problem, algorithm, training, label=label, resume=resume, watch=watcher)
        return _run_in_memory(problem, algorithm, training, watcher)


def _run_in_memory(problem: Problem, algorithm: Algorithm, training: Training, watch: Watcher) -> History:
    simulation, sink = Simulation(problem, algorithm, training), MemorySink()

    def history() -> History:
        trained = simulation.problem.state_dict(simulation.model(), statistics=simulation.statistics())
        return History(sink.records, trained, problem.model, notes=tuple(sink.notes))

    try:
        Loop(simulation, Measuring(simulation.problem, algorithm.step, training), sink, watch).to_the_end()
    except KeyboardInterrupt:
        stop = Interrupted(history())
        stop.add_note(
            "Interrupted: what was recorded is the exception's `history`.  With out= a folder the run could be resumed."
        )
        raise stop from None
    return history()
