"""A run from Python: simulate a problem and keep what happened."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from fedcef.algorithm import Algorithm
from fedcef.compressors import Compressor, Identity
from fedcef.errors import ConfigError
from fedcef.options import check_prox_steps, validate
from fedcef.problems.problem import Problem
from fedcef.regularizers import Zero
from fedcef.schedules import Schedule
from fedcef.simulation.engine import Simulation
from fedcef.simulation.evaluation import Evaluator


@dataclass(frozen=True, eq=False)
class History:
    """The records of a run, evaluated round by evaluated round, and the trained parameters."""

    records: list[dict[str, float]]
    parameters: dict[str, Tensor]

    def __getitem__(self, measure: str) -> list[float]:
        """One measure over the evaluated rounds, e.g. history["accuracy"]."""
        return [record[measure] for record in self.records]


def simulate(
    problem: Problem, algorithm: Algorithm, *, rounds: int = 100, eval_every: int = 10, **options: Any
) -> History:
    """Run an algorithm on a problem in memory; options are those of `Simulation` (seed, batch_size, clip_norm, …).

    The regulariser is the problem's, and the compressor is fitted to the model's layers.
    """
    _check(problem, algorithm, rounds, eval_every)
    h_name, name = type(problem.regularizer).__name__, type(algorithm).__name__
    check_prox_steps(h_name, problem.regularizer, name, algorithm, rounds)
    schedules = {name: s.for_rounds(rounds) for name, s in options.items() if isinstance(s, Schedule)}
    fitted: dict[str, Any] = {
        f.name: value.fit(problem.layout)
        for f in fields(algorithm)
        if isinstance(value := getattr(algorithm, f.name), Compressor)
    }
    algorithm = replace(algorithm, regularizer=problem.regularizer, **fitted)
    simulation = Simulation(problem, algorithm, **options | schedules)
    how = {name: options[name] for name in ("weighting", "precision") if name in options}
    evaluate = Evaluator(problem, algorithm.step, **how)
    records = []
    while True:
        if simulation.round % eval_every == 0 or simulation.round == rounds:
            simulation.check_finite()
            records.append({"round": simulation.round, **simulation.ledger.totals(), **evaluate(simulation.model())})
        if simulation.round == rounds:
            break
        simulation.step()
    return History(records, problem.layout.unflatten(simulation.model()))


def _check(problem: Problem, algorithm: Algorithm, rounds: int, eval_every: int) -> None:
    validate(algorithm)
    if rounds < 0 or eval_every < 1:
        raise ConfigError(f"rounds must be at least 0 and eval_every at least 1; they are {rounds} and {eval_every}.")
    if not isinstance(algorithm.regularizer, Zero) and algorithm.regularizer is not problem.regularizer:
        raise ConfigError("The regulariser belongs to the problem; give it to Problem.build, not to the algorithm.")
    if not algorithm.compresses and not isinstance(algorithm.compressor, Identity):
        raise ConfigError(f"{type(algorithm).__name__} sends its vectors whole and has no place for a compressor.")
