"""A run from Python in a run folder, as the command line writes them.

Settings stand in config.toml by the names that they have in experiments.  The problem itself is not there: its data are
told apart by a fingerprint, and what of its model is frozen by a digest, so that a run goes on only with the problem
that it began with.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr
from torch import Tensor, nn

from fedcef.algorithms import ALGORITHMS
from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import COMPRESSORS
from fedcef.core.errors import ConfigError, RunError
from fedcef.core.parts import Section, described
from fedcef.core.training import Training
from fedcef.optimizers import LOCAL_UPDATES, SERVER_UPDATES
from fedcef.problems.buffers import digest
from fedcef.problems.outputs import unwrapped
from fedcef.problems.own import Clients
from fedcef.problems.problem import Problem
from fedcef.python.history import History
from fedcef.regularizers import REGULARIZERS, OnParameters, Regularizer
from fedcef.runs.along import hear, is_first, run_along, share
from fedcef.runs.folder import FREE, RunFolder, changes
from fedcef.runs.kinds import refuse_deployed
from fedcef.runs.loop import Watcher
from fedcef.runs.reader import Record, RunReader
from fedcef.runs.run import run as run_to_the_end
from fedcef.runs.settings import IN_PYTHON, Settings, renewed


class Given(Settings):
    """Settings whose problem and algorithm are at hand."""

    _problem: Problem = PrivateAttr()
    _algorithm: Algorithm = PrivateAttr()

    def build_problem(self, clients: Clients = None) -> Problem:
        return self._problem

    def build_algorithm(self, problem: Problem) -> Algorithm:
        return self._algorithm


def run_in_folder(
    path: Path, problem: Problem, algorithm: Algorithm, training: Training, *, label: str, resume: bool, watch: Watcher
) -> History:
    """Begin a run in a folder or go on with it, to the end."""
    settings = settings_of(problem, algorithm, training, path.name, label)
    if not is_first():
        run_along(settings)
        history: History = hear()
        return history
    folder = RunFolder(path)
    exists = folder.config.exists()
    if exists:
        refuse_deployed(path)
    if exists and not resume:
        raise RunError(f"{path} already holds a run; continue it with resume=True, or choose another `out`.")
    if exists and (differing := _differing(RunReader(path).settings, settings)):
        raise ConfigError(f"{path} holds a run with other settings or data ({differing}); choose another `out`.")
    try:
        run_to_the_end(settings, folder, resume=exists, watch=watch)
    except KeyboardInterrupt as stop:
        stop.add_note(f"Interrupted.  Resume with the same call and resume=True; the run is in {path}.")
        raise
    return share(History.load(path, problem.model))


def _differing(theirs: Record, settings: Settings) -> str:
    """What the settings in a folder say otherwise, in words; files of earlier versions may lack today's defaults."""
    mine = tomllib.loads(settings.to_toml())
    with suppress(ConfigError):
        theirs = tomllib.loads(Settings(**renewed(theirs)).to_toml()) if theirs else theirs
    theirs = {**theirs, "rounds": mine["rounds"]}  # which `run` compares by itself: there may be more of them
    later = {name: mine["data"][name] for name in ("augment", "base_model", "loss_options") if name in mine["data"]}
    if later:  # which earlier versions did not write down
        theirs["data"] = {**later, **theirs.get("data", {})}
    return changes(theirs, mine, free=set(FREE) - {"label"})


def settings_of(problem: Problem, algorithm: Algorithm, training: Training, name: str, label: str) -> Given:
    """The settings of a run, named as in a settings file."""
    lossy = "down_compressor" in algorithm.compressors_used
    settings = Given(
        **{option: getattr(training, option) for option in Training.model_fields},
        name=name,
        label=label,
        num_clients=problem.num_clients,
        local_lr=algorithm.local_lr,
        server_lr=algorithm.server_lr,
        local_steps=algorithm.local_steps,
        device=problem.z0.device.type,
        algorithm=described(algorithm, ALGORITHMS, without=[f.name for f in fields(Algorithm)]),
        local_update=_unless_default(algorithm.local_update, LOCAL_UPDATES, "sgd"),
        server_update=_unless_default(algorithm.server_update, SERVER_UPDATES, "plain"),
        compressor=described(algorithm.compressor, COMPRESSORS),
        down_compressor=described(getattr(algorithm, "down_compressor", None), COMPRESSORS) if lossy else {},
        regularizer=_regularizer(problem),
        data={
            "name": IN_PYTHON,
            "loss": getattr(problem.loss, "__name__", type(problem.loss).__name__),
            **({"loss_options": given} if (given := loss_options(problem.loss)) else {}),
            "fingerprint": fingerprint(problem),
            **({"augment": given} if (given := augmentation(problem)) else {}),
            **({"base_model": base.hex()} if (base := problem.base_digest) else {}),
        },
        model={"name": type(problem.model).__name__},
    )
    settings._problem, settings._algorithm = problem, algorithm
    return settings


def loss_options(loss: Any) -> str:
    """The options of a loss that is a module, or what a `partial` fixes, by name or place; "" where there are none."""
    loss, options = unwrapped(loss)
    if isinstance(loss, nn.Module):
        for prefix, module in loss.named_modules():
            own = {name: value for name, value in vars(module).items() if name[0] != "_" and name != "training"}
            options |= {f"{prefix}.{name}".removeprefix("."): value for name, value in own.items()}
        options |= loss.state_dict()
    plain = {name: repr(value) for name, value in options.items() if isinstance(value, bool | int | float | str)}
    tensors = {name: digest({name: value}).hex() for name, value in options.items() if isinstance(value, Tensor)}
    return ", ".join(f"{name}={value}" for name, value in sorted((plain | tensors).items()))


def augmentation(problem: Problem) -> str:
    """What happens to its images at random."""
    return "none" if problem.augment is None else repr(problem.augment)


def fingerprint(problem: Problem) -> str:
    """Tells problems apart by their start point and all their samples."""
    parts = [problem.z0, *problem.data.identity()]
    for held_out in (problem.test, problem.validation):
        parts += [] if held_out is None else [held_out.inputs, held_out.targets]
    total = hashlib.sha256(json.dumps([list(part.shape) for part in parts]).encode())
    for part in parts:
        total.update(_bytes(part))
    return total.hexdigest()[:16]


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().numpy().data.cast("B") if tensor.numel() else b""


def _unless_default(thing: object, registry: Mapping[str, type[Any]], default: str) -> Section:
    section = described(thing, registry)
    return {} if section["name"] == default else section


def _regularizer(problem: Problem) -> Section:
    h: Regularizer = problem.regularizer
    if not isinstance(h, OnParameters):
        return described(h, REGULARIZERS)
    chosen = set(h.chosen.tolist())
    whole = [
        name for name, stretch, _ in problem.layout.segments() if set(range(stretch.start, stretch.stop)) <= chosen
    ]
    return {**described(h.inner, REGULARIZERS), "on": whole or f"{len(chosen)} entries"}
