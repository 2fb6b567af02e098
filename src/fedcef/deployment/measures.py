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
    set gives, or none but density."""
    step, device = settings.build_algorithm(problem).step, problem.z0.device
    if len(problem.example):
        whole = Evaluator(
            problem, step, settings.eval.train_samples, settings.weighting, settings.precision, settings.eval.metrics
        )
        return lambda x, statistics: whole(x.to(device), statistics)
    if problem.test is None:
        return _density
    tested = replace(problem, data=PooledData.of([problem.test]))
    evaluator = Evaluator(tested, step, precision=settings.precision, metrics=settings.eval.metrics)
    own = [find_metric(metric)[0] for metric in settings.eval.metrics]

    def measure(x: Tensor, statistics: Tensor | None) -> Mapping[str, float]:
        found = evaluator(x.to(device), statistics)
        accuracy = {"accuracy": found["accuracy"]} if "accuracy" in found else {}
        return {**accuracy, "test_loss": found["train_loss"], **_density(x), **{name: found[name] for name in own}}

    return measure


def _density(x: Tensor, statistics: Tensor | None = None) -> dict[str, float]:
    return {"density": float((x != 0).double().mean()), "density_1e-4": float((x.abs() > 1e-4).double().mean())}
