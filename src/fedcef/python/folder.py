"""A run from Python in a run folder, as the command line writes them.

Settings stand in config.toml by the names that they have in experiments.  The problem itself is not there: its data are
told apart by a fingerprint, so that a run goes on only with the problem that it began with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr, ValidationError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedcef.algorithms import ALGORITHMS
from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import COMPRESSORS
from fedcef.core.errors import ConfigError, RunError
from fedcef.core.parts import explain
from fedcef.core.schedules import SCHEDULES
from fedcef.problems.own import Clients
from fedcef.problems.problem import Problem
from fedcef.python.history import History, Measures, fitted
from fedcef.regularizers import REGULARIZERS, OnParameters, Regularizer
from fedcef.runs.folder import Record, RunFolder
from fedcef.runs.loop import run as run_to_the_end
from fedcef.runs.settings import Settings

IN_PYTHON = "python"
"""data.name of a problem that was made in Python."""

Section = dict[str, Any]


class Given(Settings):
    """Settings whose problem and algorithm are at hand."""

    _problem: Problem = PrivateAttr()
    _algorithm: Algorithm = PrivateAttr()

    def build_problem(self, clients: Clients = None) -> Problem:
        return self._problem

    def build_algorithm(self, problem: Problem) -> Algorithm:
        return self._algorithm


def run_in_folder(
    path: Path,
    problem: Problem,
    algorithm: Algorithm,
    *,
    rounds: int,
    eval_every: int,
    label: str,
    snapshot_every: int,
    resume: bool,
    watch: Callable[[Measures], None] | None,
    options: Mapping[str, Any],
) -> History:
    """Begin a run in a folder or go on with it, to the end."""
    algorithm = fitted(problem, algorithm, rounds, eval_every)
    config = given(problem, algorithm, rounds, eval_every, path.name, label, snapshot_every, options)
    folder = RunFolder(path)
    if folder.config.exists():
        if not resume:
            raise RunError(f"{path} already holds a run; go on with it by resume=True, or choose another `out`.")
        if folder.config.read_text("utf-8") != config.to_toml():
            raise ConfigError(f"{path} holds a run with other settings or data; choose another `out`.")
        if folder.summary.exists() and folder.model.exists():
            return load(path, problem.model)

    def seen(record: Record) -> None:
        if watch is not None and "objective" in record:
            watch(record)

    try:
        run_to_the_end(config, folder, resume=folder.config.exists(), watch=seen)
    except KeyboardInterrupt as stop:
        stop.add_note(f"Interrupted.  Go on with the same call and resume=True; the run is in {path}.")
        raise
    return load(path, problem.model)


def given(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int,
    eval_every: int,
    name: str,
    label: str,
    snapshot_every: int,
    options: Mapping[str, Any],
) -> Given:
    """The settings of a run, named as in a settings file."""
    budget = options["budget"]
    down = getattr(algorithm, "downlink", None) == "lossy"
    table: dict[str, Any] = {
        **{key: options[key] for key in ("seed", "batch_size", "weighting", "oracle", "precision", "cuda_graphs")},
        "name": name,
        "label": label,
        "rounds": rounds,
        "num_clients": problem.num_clients,
        "clients_per_round": options["clients_per_round"] or 0,
        "clip_norm": options["clip_norm"] or 0.0,
        "budget": budget.total if budget else 0,
        "local_lr": algorithm.local_lr,
        "server_lr": algorithm.server_lr,
        "local_steps": algorithm.local_steps,
        "device": problem.z0.device.type,
        "snapshot_every": snapshot_every,
        "eval": {"every": eval_every},
        "local_schedule": described(options["local_schedule"], SCHEDULES),
        "server_schedule": described(options["server_schedule"], SCHEDULES),
        "algorithm": described(algorithm, ALGORITHMS, without=[f.name for f in fields(Algorithm)]),
        "compressor": described(algorithm.compressor, COMPRESSORS),
        "down_compressor": described(getattr(algorithm, "down_compressor", None), COMPRESSORS) if down else {},
        "regularizer": _regularizer(problem),
        "data": {
            "name": IN_PYTHON,
            "loss": getattr(problem.loss, "__name__", type(problem.loss).__name__),
            "fingerprint": fingerprint(problem),
        },
        "model": {"name": type(problem.model).__name__},
    }
    try:
        config = Given.model_validate(table)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None
    config._problem, config._algorithm = problem, algorithm
    return config


def load(path: Path, template: nn.Module | None = None) -> History:
    """The history in a run folder; parameters only once the run has ended."""
    folder = RunFolder.open(path)
    records = [record for record in folder.records() if "objective" in record]
    if not records:
        raise RunError(f"The run in {path} has not been evaluated yet; wait for its first round, or go on with it.")
    parameters = load_file(folder.model) if folder.model.exists() else {}
    return History(records, parameters, template, path)


def described(thing: object, registry: Mapping[str, type[Any]], without: list[str] | None = None) -> Section:
    """An object as a section of settings: its name in the registry, or its class's, and its plain fields."""
    name = next((name for name, kind in registry.items() if type(thing) is kind), type(thing).__name__)
    plain = {}
    if is_dataclass(thing):
        plain = {f.name: getattr(thing, f.name) for f in fields(thing) if f.name not in (without or [])}
    return {"name": name, **{key: value for key, value in plain.items() if isinstance(value, bool | int | float | str)}}


def fingerprint(problem: Problem) -> str:
    """Tells problems apart by their start point and all their samples."""
    parts = [problem.z0, problem.sizes, problem.train.inputs, problem.train.targets]
    if problem.test is not None:
        parts += [problem.test.inputs, problem.test.targets]
    total = hashlib.sha256(json.dumps([list(part.shape) for part in parts]).encode())
    for part in parts:
        total.update(_bytes(part))
    return total.hexdigest()[:16]


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().numpy().data.cast("B") if tensor.numel() else b""


def _regularizer(problem: Problem) -> Section:
    h: Regularizer = problem.regularizer
    if not isinstance(h, OnParameters):
        return described(h, REGULARIZERS)
    chosen = set(h.chosen.tolist())
    whole = [
        name for name, stretch, _ in problem.layout.segments() if set(range(stretch.start, stretch.stop)) <= chosen
    ]
    return {**described(h.inner, REGULARIZERS), "on": whole or f"{len(chosen)} entries"}
