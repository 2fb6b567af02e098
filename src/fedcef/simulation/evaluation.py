"""How good a point is: test accuracy, loss, objective, stationarity and sparsity."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor

from fedcef.core.precision import Precision, matrix_units
from fedcef.core.threads import is_small, single_thread
from fedcef.problems.problem import Problem, Samples, Weighting

_CHUNK = 1000  # samples in one forward pass


class Evaluator:
    """Evaluates points of one problem.

    `train_samples` limits how many training samples are looked at, spread over the clients in proportion to
    their size; 0 means all, which is what F and its gradient are defined on.  `weighting` is how the engine averages
    clients: alike, or by their number of samples.
    """

    def __init__(
        self,
        problem: Problem,
        step: float,
        train_samples: int = 0,
        weighting: Weighting = "uniform",
        precision: Precision = "float32",
    ) -> None:
        self.problem = problem
        self.step = step
        self._precision: Precision = precision
        self._model = deepcopy(problem.model).eval()
        total = int(problem.sizes.sum())
        share = 1.0 if train_samples <= 0 else min(1.0, train_samples / total)
        sizes = problem.sizes.tolist()
        self._weights = [1 / len(sizes) if weighting == "uniform" else size / total for size in sizes]
        starts = problem.starts.tolist()
        counts = [max(1, round(share * size)) for size in sizes]
        self._rows = [slice(start, start + count) for start, count in zip(starts, counts, strict=True)]

    def __call__(self, x: Tensor) -> dict[str, float]:
        """All measures at the point x, (p,)."""
        return {name: float(value) for name, value in self.measure(x).items()}

    def measure(self, x: Tensor) -> dict[str, Tensor]:
        """All measures at the point x, (p,), as numbers on the device that nothing has waited for."""
        small = is_small(self.problem.num_clients * self.problem.dim)
        with matrix_units(self._precision), single_thread(when=small):
            return self._measure(x)

    def _measure(self, x: Tensor) -> dict[str, Tensor]:
        problem = self.problem
        loss, gradient = self.loss_and_gradient(x)
        measures = {}
        if problem.test is not None and problem.classifies:
            measures["accuracy"] = self._accuracy(x, problem.test)
        moved = problem.regularizer.prox(x - self.step * gradient, self.step)
        measures["train_loss"] = loss
        measures["objective"] = loss + problem.regularizer.value(x)
        measures["stationarity"] = ((x - moved) / self.step).square().sum()
        measures["density"] = (x != 0).double().mean()
        measures["density_1e-4"] = (x.abs() > 1e-4).double().mean()
        if problem.truth is not None:
            measures |= distance_to_truth(x, problem.truth, problem.layout.shapes)
        return measures

    def loss_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(x) = (weighted) mean over clients of the mean over their samples, and its gradient."""
        problem = self.problem
        x = x.detach().requires_grad_()
        loss, gradient = x.new_zeros(()), torch.zeros_like(x)
        for inputs, targets, weight in self._batches():
            part = weight * problem.loss(problem.outputs(self._model, x, inputs), targets)
            gradient += torch.autograd.grad(part, x)[0]
            loss += part.detach()
        return loss, gradient

    @torch.no_grad()
    def loss(self, x: Tensor) -> Tensor:
        """f(x)."""
        total = x.new_zeros(())
        for inputs, targets, weight in self._batches():
            total += weight * self.problem.loss(self.problem.outputs(self._model, x, inputs), targets)
        return total

    def _batches(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        """All samples that are looked at, in pieces, each with its weight in f."""
        train = self.problem.train
        for weight, rows in zip(self._weights, self._rows, strict=True):
            samples = Samples(train.inputs[rows], train.targets[rows])
            for inputs, targets in _chunks(samples):
                yield inputs, targets, weight * len(inputs) / len(samples)

    @torch.no_grad()
    def _accuracy(self, x: Tensor, samples: Samples) -> Tensor:
        right = torch.zeros((), dtype=torch.int64, device=x.device)
        for inputs, targets in _chunks(samples):
            outputs = self.problem.outputs(self._model, x, inputs)
            one_logit = outputs.numel() == len(inputs)  # two classes told apart by the sign of one number
            predicted = (outputs.flatten() > 0).to(targets.dtype) if one_logit else outputs.argmax(-1)
            right += (predicted == targets.reshape(predicted.shape)).sum()
        return right.double() / len(samples)


def distance_to_truth(x: Tensor, truth: Tensor, shapes: tuple[tuple[int, ...], ...]) -> dict[str, Tensor]:
    """How far x is from the parameters that made the data; a single matrix is measured as one."""
    measures = {"l2_error": (x - truth).norm()}
    if len(shapes) == 1 and len(shapes[0]) == 2:
        spectrum = torch.linalg.svdvals(x.reshape(shapes[0]))
        measures["rank"] = (spectrum > 1e-4).sum()
        measures["operator_error"] = torch.linalg.matrix_norm((x - truth).reshape(shapes[0]), ord=2)
    else:
        measures["f1"] = support_f1(x, truth)
    return measures


def support_f1(x: Tensor, truth: Tensor, threshold: float = 0.01) -> Tensor:
    """How well the entries above the threshold find the true support: 2·hits / (found + true)."""
    found, true = x.abs() > threshold, truth != 0
    return 2 * (found & true).sum() / (found.sum() + true.sum())


def _chunks(samples: Samples) -> zip[tuple[Tensor, Tensor]]:
    return zip(torch.split(samples.inputs, _CHUNK), torch.split(samples.targets, _CHUNK), strict=True)
