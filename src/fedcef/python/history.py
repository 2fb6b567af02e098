"""A run in memory: simulate a problem and keep what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import Compressor, Identity
from fedcef.core.errors import ConfigError, ProblemError
from fedcef.core.parts import check_prox_steps, validate
from fedcef.core.schedules import Schedule
from fedcef.problems.problem import Problem
from fedcef.regularizers import Zero
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.simulation import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Measures = dict[str, float]
"""A round's number, the bytes so far, and how good the point is."""


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """The records of a run, evaluated round by evaluated round, and the trained parameters."""

    records: list[Measures]
    parameters: dict[str, Tensor]
    """By name, as a `state_dict` has them."""
    template: nn.Module | None = field(default=None, repr=False)
    """A module that the parameters fit."""
    folder: Path | None = None
    """Where the run is on disk, if it is."""

    @classmethod
    def load(cls, folder: str | Path, template: nn.Module | None = None) -> History:
        """The history in a run folder, of a run from Python or by the command line."""
        from fedcef.python.folder import load

        return load(Path(folder), template)

    @property
    def measures(self) -> list[str]:
        """The names of what was recorded."""
        return list(dict.fromkeys(name for record in self.records for name in record))

    @property
    def last(self) -> Measures:
        """The record of the last round."""
        return self.records[-1]

    @property
    def bytes(self) -> int:
        """All that was sent, up and down, in the wire format."""
        return int(self.last["wire_up_bytes"] + self.last["wire_down_bytes"])

    @property
    def model(self) -> nn.Module:
        """The trained model: a copy of the problem's module with the trained parameters."""
        if self.template is None:
            raise ProblemError(
                "This history knows its parameters but not their module; load them into yours: "
                "module.load_state_dict(history.parameters)."
            )
        model = deepcopy(self.template)
        model.load_state_dict(self.parameters)
        return model

    def __getitem__(self, measure: str) -> list[float]:
        """One measure over the evaluated rounds, e.g. history["accuracy"]."""
        if measure not in self.measures:
            raise KeyError(f"{measure!r} was not recorded; there are {', '.join(self.measures)}.")
        return [record[measure] for record in self.records]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Measures]:
        return iter(self.records)

    def frame(self) -> DataFrame:
        """The records as a pandas table, one row per evaluated round, which is its index."""
        from fedcef.python.views import frame

        return frame(self)

    def plot(self, *measures: str, against: str = "round") -> Figure:
        """Draw measures against "round", "bytes" or any other recorded column; returns matplotlib's figure.

        Without names: accuracy where there is one, the objective, stationarity and density.
        """
        from fedcef.python.plot import plot

        return plot(self, measures, against)

    def __repr__(self) -> str:
        from fedcef.python.views import text

        return text(self)

    def _repr_html_(self) -> str:
        from fedcef.python.views import html

        return html(self)


def simulate(
    problem: Problem,
    algorithm: Algorithm,
    *,
    rounds: int = 100,
    eval_every: int = 10,
    watch: Callable[[Measures], None] | None = None,
    **options: Any,
) -> History:
    """Run an algorithm on a problem in memory; options are those of `Simulation` (seed, batch_size, clip_norm, …).

    The regulariser is the problem's, and the compressor is fitted to the model's layers.  `fedcef.run` is the same with
    its options spelled out, and can keep the run in a folder.
    """
    algorithm = fitted(problem, algorithm, rounds, eval_every)
    schedules = {name: s.for_rounds(rounds) for name, s in options.items() if isinstance(s, Schedule)}
    simulation = Simulation(problem, algorithm, **options | schedules)
    how = {name: options[name] for name in ("weighting", "precision") if name in options}
    evaluate = Evaluator(problem, algorithm.step, **how)
    records: list[Measures] = []
    while True:
        if simulation.round % eval_every == 0 or simulation.round == rounds:
            simulation.check_finite()
            records.append({"round": simulation.round, **simulation.ledger.totals(), **evaluate(simulation.model())})
            if watch is not None:
                watch(records[-1])
        if simulation.round == rounds:
            break
        simulation.step()
    return History(records, problem.layout.unflatten(simulation.model()), problem.model)


def fitted(problem: Problem, algorithm: Algorithm, rounds: int, eval_every: int) -> Algorithm:
    """The algorithm with the problem's regulariser and with compressors for its layers, after a check of both."""
    _check(problem, algorithm, rounds, eval_every)
    h_name, name = type(problem.regularizer).__name__, type(algorithm).__name__
    check_prox_steps(h_name, problem.regularizer, name, algorithm, rounds)
    compressors: dict[str, Any] = {
        f.name: value.fit(problem.layout)
        for f in fields(algorithm)
        if isinstance(value := getattr(algorithm, f.name), Compressor)
    }
    return replace(algorithm, regularizer=problem.regularizer, **compressors)


def _check(problem: Problem, algorithm: Algorithm, rounds: int, eval_every: int) -> None:
    for thing, kind in ((problem, Problem), (algorithm, Algorithm)):
        if not isinstance(thing, kind):
            raise ConfigError(
                f"A run takes a problem and an algorithm, for example run(problem, FedCEF(local_lr=0.1)); "
                f"{thing!r} is no {kind.__name__}."
            )
    validate(algorithm)
    for value in (getattr(algorithm, f.name) for f in fields(algorithm)):
        if isinstance(value, Compressor) and is_dataclass(value):
            validate(value)
    if rounds < 0 or eval_every < 1:
        raise ConfigError(f"rounds must be at least 0 and eval_every at least 1; they are {rounds} and {eval_every}.")
    if not isinstance(algorithm.regularizer, Zero) and algorithm.regularizer is not problem.regularizer:
        raise ConfigError("The regulariser belongs to the problem; give it to Problem.build, not to the algorithm.")
    if not algorithm.compresses and not isinstance(algorithm.compressor, Identity):
        raise ConfigError(f"{type(algorithm).__name__} sends its vectors whole and has no place for a compressor.")
