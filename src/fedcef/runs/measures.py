"""What is measured of a run's model: the evaluation, the method's own scalars, and the gap to the optimum."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedcef.core.training import Training
from fedcef.problems.problem import Problem
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.simulation import Simulation


class Measuring:
    """Measures the current point of a simulation, on the device."""

    def __init__(self, problem: Problem, step: float, training: Training, optimum: float | None = None) -> None:
        """`step` is the length of the proximal step in the gradient mapping, `optimum` is F* where it is known."""
        # a gap is a difference of nearly equal numbers: it is taken in float64
        exact = None if optimum is None else torch.float64  # frozen parameters may have a type of their own
        self._problem = problem.to(problem.z0.device, exact)
        self._step, self._training, self._optimum = step, training, optimum
        self._evaluators: dict[int, Evaluator] = {}

    def of(self, simulation: Simulation, *, all_samples: bool) -> dict[str, Tensor]:
        """All measures of the current point, as numbers that nothing has waited for."""
        options = self._training.eval
        samples = 0 if all_samples and options.last_on_all else options.train_samples
        point = simulation.model().to(self._problem.z0.dtype)
        return self._evaluator(samples).measure(point, simulation.statistics()) | simulation.diagnostics()

    def as_numbers(self, measures: Mapping[str, Tensor]) -> dict[str, float]:
        """The measures on the host, with the gap F(z) - F* where the optimum is known."""
        numbers = {name: float(value) for name, value in measures.items()}
        return numbers if self._optimum is None else {**numbers, "gap": numbers["objective"] - self._optimum}

    def _evaluator(self, samples: int) -> Evaluator:
        if samples not in self._evaluators:
            options = self._training
            self._evaluators[samples] = Evaluator(
                self._problem,
                self._step,
                samples,
                options.weighting,
                options.precision,
                options.eval.metrics,
                options.eval.clients,
                options.eval.per_client,
            )
        return self._evaluators[samples]
