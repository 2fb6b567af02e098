"""What a server can say about its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from fedcef.deployment.server_state import Evaluate
from fedcef.problems.client_data import PooledData
from fedcef.problems.metrics import find_metric
from fedcef.problems.problem import Problem
from fedcef.runs.settings import Settings
from fedcef.simulation.evaluation import Evaluator


def measures_of(settings: Settings, problem: Problem) -> Evaluate:
    """All measures where the server has the training data, as of the shipped experiments; otherwise those that the test
    set and the validation set give, or none but density."""
    step, device, options = settings.build_algorithm(problem).step, problem.z0.device, settings.eval
    if len(problem.example):
        whole = Evaluator(
            problem,
            step,
            options.train_samples,
            settings.weighting,
            settings.precision,
            options.metrics,
            options.clients,
            options.per_client,
        )
        return lambda x, statistics: whole(x.to(device), statistics)
    held_out = problem.validation if problem.test is None else problem.test
    if held_out is None:
        return _density
    tested = replace(problem, data=PooledData.of([held_out]))
    evaluator = Evaluator(tested, step, precision=settings.precision, metrics=options.metrics)
    own = [find_metric(metric)[0] for metric in options.metrics]

    def measure(x: Tensor, statistics: Tensor | None) -> Mapping[str, float]:
        found = evaluator(x.to(device), statistics)
        accuracy = {"accuracy": found["accuracy"]} if "accuracy" in found else {}
        loss = {} if problem.test is None else {"test_loss": found["train_loss"]}
        asked = {name: found[name] for name in own if name in found}
        validation = {name: value for name, value in found.items() if name.startswith("validation_")}
        return {**accuracy, **loss, **_density(x), **asked, **validation}

    return measure


def unmeasured(settings: Settings, problem: Problem) -> str:
    """A sentence about measures that were asked for and cannot be had here; empty if there are none."""
    asked = [f"eval.{name}" for name in ("per_client", "clients") if getattr(settings.eval, name)]
    if not asked or len(problem.example):
        return ""
    return (
        f"{' and '.join(asked)}: these measures are of the clients' own samples, which this server does not have; the "
        "records of this run have none of them."
    )


def _density(x: Tensor, statistics: Tensor | None = None) -> dict[str, float]:
    return {"density": float((x != 0).double().mean()), "density_1e-4": float((x.abs() > 1e-4).double().mean())}
