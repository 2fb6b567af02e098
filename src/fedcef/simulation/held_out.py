"""What is measured on samples that are held out, those of a test or of a validation set, in one pass over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from fedcef.problems.metrics import ACCURACY, Metric, Sums, find_metric, of_all, tells_loss
from fedcef.problems.problem import Problem


class HeldOut:
    """Takes metrics of the test set of a problem."""

    def __init__(self, problem: Problem, metrics: Mapping[str, Metric]) -> None:
        self._problem, self._metrics = problem, metrics
        self._counted: int | None = None

    @torch.no_grad()
    def __call__(self, model: nn.Module, x: Tensor, chunks: Iterable[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        """All metrics at the point x, (p,), from the samples in chunks."""
        totals: dict[str, Tensor] = {}
        whole = {name: metric for name, metric in self._metrics.items() if not isinstance(metric, Sums)}
        kept = []
        for inputs, targets in chunks:
            outputs = self._problem.outputs(model, x, inputs)
            for name, metric in self._metrics.items():
                if isinstance(metric, Sums):
                    part = metric.of(self._problem, outputs, targets)
                    totals[name] = totals[name] + part if name in totals else part
            kept += [(outputs, targets)] if whole else []
        values = {name: self._value(name, total) for name, total in totals.items()}
        if whole:
            outputs, targets = (torch.cat(parts) for parts in zip(*kept, strict=True))
            values |= {n: of_all(self._problem, n, metric, outputs, targets) for n, metric in whole.items()}
        return {name: values[name] for name in self._metrics}

    def _value(self, name: str, total: Tensor) -> Tensor:
        metric = self._metrics[name]
        assert isinstance(metric, Sums)
        if metric is not ACCURACY:
            return metric.value(self._problem, total)
        if self._counted is None:  # it is the same at every point: a GPU is made to wait for it once
            self._counted = max(1, int(total[1]))
        return total[0].double() / self._counted


def default_metrics(problem: Problem) -> dict[str, Metric]:
    """What is measured on a test set unasked."""
    accuracy: dict[str, Metric] = {"accuracy": ACCURACY} if problem.classifies else {}
    return accuracy | (dict([find_metric("loss")]) if tells_loss(problem) else {})
