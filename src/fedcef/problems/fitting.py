"""A method made ready for a problem: its parts are checked, and fitted to the model's layers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import Compressor, Identity
from fedcef.core.errors import ConfigError
from fedcef.core.layout import Layout
from fedcef.core.parts import validate
from fedcef.problems.problem import Problem
from fedcef.regularizers import Regularizer, Zero


def fitted(problem: Problem, algorithm: Algorithm, rounds: int) -> Algorithm:
    """The algorithm with the problem's regulariser and with compressors for its layers, after a check of both."""
    for thing, kind in ((problem, Problem), (algorithm, Algorithm)):
        if not isinstance(thing, kind):
            raise ConfigError(
                f"A run takes a problem and an algorithm, for example run(problem, FedCEF(local_lr=0.1)); "
                f"{thing!r} is no {kind.__name__}."
            )
    validate(algorithm)
    compressors: dict[str, Any] = {
        f.name: value for f in fields(algorithm) if isinstance(value := getattr(algorithm, f.name), Compressor)
    }
    for compressor in compressors.values():
        if is_dataclass(compressor):
            validate(compressor)
    if not isinstance(algorithm.regularizer, Zero) and algorithm.regularizer is not problem.regularizer:
        raise ConfigError("The regulariser belongs to the problem; give it to Problem.build, not to the algorithm.")
    name = type(algorithm).__name__
    if not algorithm.compresses and not isinstance(algorithm.compressor, Identity):
        raise ConfigError(f"{name} has no place for a compressor; leave it out.")
    check_prox_steps(type(problem.regularizer).__name__, problem.regularizer, name, algorithm, rounds)
    fit = {field: compressor.fit(problem.layout) for field, compressor in compressors.items()}
    return with_fitted_update(replace(algorithm, regularizer=problem.regularizer, **fit), problem.layout, rounds)


def with_fitted_update(algorithm: Algorithm, layout: Layout, rounds: int) -> Algorithm:
    """The algorithm with a local update that knows the model's layers and how many local steps the run has."""
    update = algorithm.local_update.fit(layout).for_steps(rounds * algorithm.local_steps)
    return algorithm if update is algorithm.local_update else replace(algorithm, local_update=update)


def check_prox_steps(h_name: str, h: Regularizer, name: str, algorithm: Algorithm, rounds: int) -> None:
    """Refuse a weakly convex regulariser whose proximal operator would be multivalued for the steps taken."""
    limit, longest = h.largest_step, algorithm.largest_prox_step(rounds)
    if 0 < limit <= longest:
        raise ConfigError(
            f"The regulariser {h_name} needs proximal steps below {limit:g}, but {name} takes steps up to {longest:g} "
            f"in {rounds} rounds.  Give the regulariser a larger gamma (mcp) or a (scad), or lower local_lr, server_lr "
            "or local_steps."
        )
