"""How good a point is: test accuracy, loss, objective, stationarity and sparsity."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor

from fedcef.problems.problem import Problem, Samples, Weighting
from fedcef.threads import is_small, single_thread

_CHUNK = 1000  # samples in one forward pass


class Evaluator:
    """Evaluates points of one problem.

    `train_samples` limits how many training samples are looked at, spread over the clients in proportion to
    their size; 0 means all, which is what F and its gradient are defined on.  `weighting` is how the engine averages
    clients: alike, or by their number of samples.
    """

    def __init__(self, problem: Problem, step: float, train_samples: int = 0, weighting: Weighting = "uniform") -> None:
        self.problem = problem
        self.step = step
        self._model = deepcopy(problem.model).eval()
        total = int(problem.sizes.sum())
        share = 1.0 if train_samples <= 0 else min(1.0, train_samples / total)
        sizes = problem.sizes.tolist()
        self._weights = [1 / len(sizes) if weighting == "uniform" else size / total for size in sizes]
        self._counts = [max(1, round(share * size)) for size in problem.sizes.tolist()]

    def __call__(self, x: Tensor) -> dict[str, float]:
        """All measures at the point x, (p,)."""
        with single_thread(when=is_small(self.problem.num_clients * self.problem.dim)):
            return self._measure(x)

    def _measure(self, x: Tensor) -> dict[str, float]:
        problem = self.problem
        loss, gradient = self.loss_and_gradient(x)
        measures = {}
        if problem.test is not None and problem.classifies:
            measures["accuracy"] = self._accuracy(x, problem.test)
        moved = problem.regularizer.prox(x - self.step * gradient, self.step)
        measures["train_loss"] = float(loss)
        measures["objective"] = float(loss + problem.regularizer.value(x))
        measures["stationarity"] = float(((x - moved) / self.step).square().sum())
        measures["density"] = float((x != 0).double().mean())
        measures["density_1e-4"] = float((x.abs() > 1e-4).double().mean())
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
        for client, count in enumerate(self._counts):
            samples = self.problem.client_samples(client, count)
            for inputs, targets in _chunks(samples):
                yield inputs, targets, self._weights[client] * len(inputs) / len(samples)

    @torch.no_grad()
    def _accuracy(self, x: Tensor, samples: Samples) -> float:
        right = 0
        for inputs, targets in _chunks(samples):
            outputs = self.problem.outputs(self._model, x, inputs)
            one_logit = outputs.numel() == len(inputs)  # two classes told apart by the sign of one number
            predicted = (outputs.flatten() > 0).to(targets.dtype) if one_logit else outputs.argmax(-1)
            right += int((predicted == targets.reshape(predicted.shape)).sum())
        return right / len(samples)


def distance_to_truth(x: Tensor, truth: Tensor, shapes: tuple[tuple[int, ...], ...]) -> dict[str, float]:
    """How far x is from the parameters that made the data; a single matrix is measured as one."""
    measures = {"l2_error": float((x - truth).norm())}
    if len(shapes) == 1 and len(shapes[0]) == 2:
        spectrum = torch.linalg.svdvals(x.reshape(shapes[0]))
        measures["rank"] = float((spectrum > 1e-4).sum())
        measures["operator_error"] = float(torch.linalg.matrix_norm((x - truth).reshape(shapes[0]), ord=2))
    else:
        measures["f1"] = support_f1(x, truth)
    return measures


def support_f1(x: Tensor, truth: Tensor, threshold: float = 0.01) -> float:
    """How well the entries above the threshold find the true support: 2·hits / (found + true)."""
    found, true = x.abs() > threshold, truth != 0
    return float(2 * (found & true).sum() / (found.sum() + true.sum()))


def _chunks(samples: Samples) -> zip[tuple[Tensor, Tensor]]:
    return zip(torch.split(samples.inputs, _CHUNK), torch.split(samples.targets, _CHUNK), strict=True)
