"""Theorem 1 held against a run, or against settings that were not run yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, inf, log10, sqrt
from pathlib import Path
from statistics import fmean

from torch import Tensor

from fedcef.algorithms import FedCEF
from fedcef.core.errors import ConfigError, RunError
from fedcef.core.precision import state_dtype
from fedcef.problems.own import call
from fedcef.problems.problem import Problem
from fedcef.python.folder import fingerprint
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.reader import Record
from fedcef.runs.settings import IN_PYTHON, Settings
from fedcef.theory.conditions import Condition, premises, step_sizes
from fedcef.theory.estimates import Curvature, Losses, minibatch_variance
from fedcef.theory.theorem import Bound, Setting, Start, compute_bound

SAME = {
    "zhang": "With algorithm.name=fedcef, algorithm.mixing=1 and no compressor it would compute the same.",
    "scafcom": "With algorithm.name=fedcef and regularizer.name=zero it would compute the same.",
    "ef21_prox": "With algorithm.name=fedcef, algorithm.mixing=1 and local_steps=1 it would compute the same.",
}


@dataclass(frozen=True)
class Advice:
    """Step sizes that meet both conditions, and what the theorem promises with them."""

    local_lr: float
    server_lr: float
    bound: Bound | None


@dataclass(frozen=True)
class Measured:
    """The mean of |G|² over the evaluated rounds but the last, as in the theorem's sum."""

    mean: float
    evaluated: int
    rounds: int
    on_some_samples: bool


@dataclass(frozen=True)
class Check:
    """What the theorem says of a run."""

    setting: Setting | None
    """None if the compressor is no contraction: then there is no q."""
    curvatures: dict[str, Curvature]
    variance: float
    """σ²/B."""
    batch_size: int
    conditions: tuple[Condition, ...]
    bound: Bound | None
    """None if a condition is not met."""
    advice: Advice | None
    measured: Measured | None
    optimum_known: bool
    """Whether F* is known; otherwise 0 takes its place, which only makes the bound larger."""

    @property
    def applies(self) -> bool:
        """Whether every condition is met."""
        return all(condition.met for condition in self.conditions)


def check_theorem(
    target: str | Path, changes: Iterable[str] = (), samples: int = 256, problem: Problem | str | None = None
) -> Check:
    """Hold Theorem 1 against a run, or against settings that were not run yet.

    Args:
        target: A run folder, a shipped experiment or a .toml file.
        changes: `key=value` strings that change an experiment.
        samples: L and the start are taken on at most so many samples of every client; 0 = all.
        problem: For a run from Python, the problem that was trained, or the import path of a function that makes it.
    """
    config, folder = _settings(str(target), list(changes))
    name = str(config.algorithm["name"])
    if name != "fedcef":
        raise ConfigError(f"Theorem 1 is about fedcef; it says nothing of {name}.  {SAME.get(name, '')}".strip())
    plain = config.model_copy(update={"device": "auto", "privacy": None})
    problem = plain.build_problem() if problem is None and not _in_python(config) else _given(problem, config, target)
    algorithm = plain.build_algorithm(problem)
    assert isinstance(algorithm, FedCEF)

    points = {"at the start": problem.z0}
    if folder is not None and folder.model.is_file():
        points["at the end"] = _trained(problem, folder)
    losses = Losses(problem, samples)
    curvatures = {where: losses.curvature(x) for where, x in points.items()}
    variance = max(minibatch_variance(problem, x, config.batch_size, config.seed) for x in points.values())

    q2 = algorithm.compressor.contraction(problem.dim)
    setting = None
    if q2 is not None and q2 < 1:
        setting = Setting(
            smoothness=max(curvature.client for curvature in curvatures.values()),
            contraction=sqrt(q2),
            mixing=algorithm.mixing,
            local_lr=algorithm.local_lr,
            server_lr=algorithm.server_lr,
            local_steps=algorithm.local_steps,
            num_clients=problem.num_clients,
        )
    records = folder.records() if folder is not None else []
    optimum = _optimum(records)
    conditions = (*premises(config, problem, algorithm, q2), *step_sizes(setting))
    subgradient = problem.regularizer.bounded_subgradient(problem.dim)
    promise, advice = None, None
    if setting is not None:
        start = _start(problem, losses, optimum or 0.0)

        def promised(setting: Setting) -> Bound | None:
            if subgradient is None:
                return None
            return compute_bound(setting, start, rounds=config.rounds, noise=variance, subgradient=subgradient)

        promise = promised(setting) if all(condition.met for condition in conditions) else None
        advice = _advice(setting)
        advised = replace(setting, local_lr=advice.local_lr, server_lr=advice.server_lr)
        advice = replace(advice, bound=promised(advised))
    measured = _measured(records, config)
    return Check(
        setting, curvatures, variance, config.batch_size, conditions, promise, advice, measured, optimum is not None
    )


def _settings(target: str, changes: Sequence[str]) -> tuple[Settings, RunFolder | None]:
    if not Path(target).is_dir():
        return load_settings(target, changes), None
    if changes:
        raise ConfigError("A run has the settings that it had; leave --set out, or give an experiment or .toml file.")
    folder = RunFolder.open(Path(target))
    return load_settings(str(folder.config)), folder


def _in_python(config: Settings) -> bool:
    return bool(config.data["name"] == IN_PYTHON)


def _given(problem: Problem | str | None, config: Settings, target: str | Path) -> Problem:
    """The problem of a run from Python, which must be the one that it was run with."""
    if not _in_python(config):
        raise ConfigError(f"The settings of {target} build its problem; a problem is given for runs from Python only.")
    if problem is None:
        raise ConfigError(
            f"The run in {target} was made in Python, and its settings do not tell its problem; give it by "
            "--problem package.module:function, or in Python by check_theorem(run, problem=problem)."
        )
    made = call("--problem", problem) if isinstance(problem, str) else problem
    if not isinstance(made, Problem):
        raise ConfigError(f"{problem} returned {type(made).__name__}; it must return a fedcef.Problem.")
    if fingerprint(made) != config.data.get("fingerprint"):
        raise ConfigError(f"The problem given is not the one of the run in {target}: its data or its start differ.")
    return made.to(made.z0.device, state_dtype(config.precision))


def _trained(problem: Problem, folder: RunFolder) -> Tensor:
    """Where the run ended, (p,)."""
    weights, layout = folder.read_model(), problem.layout
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        if name not in weights or tuple(weights[name].shape) != shape:
            raise RunError(f"{folder.model} does not fit the run's problem: {name} differs or is missing.")
    return layout.flatten(weights).to(problem.z0)


def _advice(setting: Setting) -> Advice:
    """The least η_g and the longest β that are allowed, in three digits on the safe side."""
    server_lr = _rounded(setting.least_server_lr, up=True)
    local_lr = _rounded(setting.largest_step / (server_lr * setting.local_steps), up=False)
    return Advice(local_lr, server_lr, None)


def _rounded(number: float, *, up: bool) -> float:
    if not 0 < number < inf:
        return number
    unit = 10.0 ** (floor(log10(number)) - 2)
    return float(f"{(ceil if up else floor)(number / unit) * unit:.3g}")


def _start(problem: Problem, losses: Losses, optimum: float) -> Start:
    z0 = problem.z0
    gradients = losses.gradients(z0).double()
    return Start(
        gap=float(losses.values(z0).double().mean() + problem.regularizer.value(z0)) - optimum,
        gradient=float(gradients.mean(0).square().sum()),
        client_gradients=float(gradients.square().sum(-1).mean()),
    )


def _optimum(records: Sequence[Record]) -> float | None:
    """F*, if the run was told to find it."""
    return next((r["objective"] - r["gap"] for r in records if "gap" in r), None)


def _measured(records: Sequence[Record], config: Settings) -> Measured | None:
    values = [r["stationarity"] for r in records if "stationarity" in r and r["round"] < config.rounds]
    if not values:
        return None
    return Measured(fmean(values), len(values), config.rounds, config.eval.train_samples > 0)
