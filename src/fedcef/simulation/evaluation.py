"""How good a point is: test accuracy, loss, objective, stationarity and sparsity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.precision import Precision, matrix_units
from fedcef.core.rng import fixed_key
from fedcef.core.round import POPULATION, draw_cohort
from fedcef.core.threads import is_small, single_thread
from fedcef.core.training import Weighting
from fedcef.oracles.gradient_oracle import convolves
from fedcef.problems.accuracy import right_and_counted
from fedcef.problems.client_data import Samples
from fedcef.problems.copying import copied
from fedcef.problems.lending import lend
from fedcef.problems.metrics import ACCURACY, LOSS, Whole, find_metric
from fedcef.problems.outputs import ignored_by, scores
from fedcef.problems.pieces import scaled
from fedcef.problems.problem import Problem
from fedcef.simulation.held_out import HeldOut, default_metrics

_OF_A_POPULATION = 1000  # clients that stand for all, where there are very many
_CHUNK = 1000  # samples in one forward pass; it decides the order of sums, and so the last bits of records
_TARGETS = 16_384  # the most targets in one, where samples have several: windows of tokens are a few at a time
_ONE_BY_ONE = 100  # clients that are evaluated one after the other; more go together, with other last bits
_TOGETHER = {False: 4000, True: 250}  # samples of clients that go together, by whether there are convolutions: measured
_TOGETHER_ON_A_GPU = 4000  # where launches cost more than memory


class Evaluator:
    """Evaluates points of one problem.

    Args:
        problem: What is evaluated.
        step: The length of the step by which stationarity is measured.
        train_samples: How many training samples are looked at, spread over the clients in proportion to their size;
            0 means all, which is what F and its gradient are defined on.
        weighting: How the engine averages clients: alike, or by their number of samples.
        precision: The arithmetic of a GPU's products.
        metrics: What else to measure on the test set: names in `METRICS`, functions of all outputs and targets that
            return one number, or their import paths "module:function".
        clients: Over how many clients f and its gradient are taken, the same ones in every run; 0 means all, or 1,000
            of a population.
        per_client: Whether to measure how unlike the clients are in accuracy, or in loss where there are no classes.
    """

    def __init__(
        self,
        problem: Problem,
        step: float,
        train_samples: int = 0,
        weighting: Weighting = "uniform",
        precision: Precision = "float32",
        metrics: Sequence[str | Whole] = (),
        clients: int = 0,
        per_client: bool = False,
    ) -> None:
        self.problem = problem
        self.step = step
        self._precision: Precision = precision
        held_out = {"": problem.test, "validation_": problem.validation}
        self._held_out = {prefix: samples for prefix, samples in held_out.items() if samples is not None}
        if metrics and not self._held_out:
            named = find_metric(metrics[0])[0]
            raise ConfigError(f"eval.metrics are measured on a test set, and there is none; leave {named} out.")
        measured = default_metrics(problem) | dict(map(find_metric, metrics))
        self._measured = {
            "": HeldOut(problem, measured),
            "validation_": HeldOut(replace(problem, test=problem.validation), {**measured, "test_loss": LOSS}),
        }
        self._per_client = per_client
        self._model = copied(problem.model, shares=True).eval()
        looked_at = _looked_at(problem.num_clients, clients)
        self._rows = len(looked_at)
        sizes = problem.data.sizes_of(looked_at.to(problem.z0.device)).tolist()
        total = sum(sizes)
        share = 1.0 if train_samples <= 0 else min(1.0, train_samples / total)
        weights = [1 / len(sizes) if weighting == "uniform" else size / total for size in sizes]
        counts = [max(1, round(share * size)) for size in sizes]
        self._alone = list(zip(looked_at.tolist(), counts, weights, strict=True))
        self._groups: list[_Group] = []
        if len(sizes) > _ONE_BY_ONE and self._goes_together():
            together = _TOGETHER_ON_A_GPU if problem.z0.is_cuda else _TOGETHER[convolves(problem.model)]
            piece = min(together, _at_most(problem.example.targets, _TARGETS))
            self._groups = _groups([part for part in self._alone if part[1] <= piece], piece, problem.z0)
            self._alone = [part for part in self._alone if part[1] > piece]

    def __call__(self, x: Tensor, statistics: Tensor | None = None) -> dict[str, float]:
        """All measures at the point x, (p,), with these running statistics, (q,), where they are averaged."""
        return {name: float(value) for name, value in self.measure(x, statistics).items()}

    def measure(self, x: Tensor, statistics: Tensor | None = None) -> dict[str, Tensor]:
        """The same as numbers on the device that nothing has waited for."""
        if statistics is not None:
            self.problem.statistics.put(self._model, statistics)
        small = is_small(self._rows * self.problem.dim)
        with matrix_units(self._precision), single_thread(when=small):
            return self._measure(x)

    def _measure(self, x: Tensor) -> dict[str, Tensor]:
        problem = self.problem
        loss, gradient = self.loss_and_gradient(x)
        tested: dict[str, Tensor] = {}
        for prefix, samples in self._held_out.items():
            found = self._measured[prefix](self._model, x, _chunks(samples))
            tested |= {_named(prefix, name): value for name, value in found.items()}
        first = [name for name in tested if name in ("accuracy", "test_loss")]
        measures = {name: tested.pop(name) for name in first}
        moved = problem.regularizer.prox(x - self.step * gradient, self.step)
        measures["train_loss"] = loss
        measures["objective"] = loss + problem.regularizer.value(x)
        measures["stationarity"] = ((x - moved) / self.step).square().sum()
        measures["density"] = (x != 0).double().mean()
        measures["density_1e-4"] = (x.abs() > 1e-4).double().mean()
        if problem.truth is not None:
            measures |= distance_to_truth(x, problem.truth, problem.layout.shapes)
        if self._per_client:
            measures |= self._unlike(x)
        return measures | tested

    def loss_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(x) = (weighted) mean over clients of the mean over their samples, and its gradient."""
        x = x.detach().requires_grad_()
        return lend(self._model, self.problem.layout.unflatten(x), partial(self._differentiate, x))

    def _differentiate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        loss, gradient = x.new_zeros(()), torch.zeros_like(x)
        for part in self._parts(x):
            gradient += torch.autograd.grad(part, x)[0]
            loss += part.detach()
        return loss, gradient

    @torch.no_grad()
    def loss(self, x: Tensor) -> Tensor:
        """f(x)."""
        total = x.new_zeros(())
        for part in self._parts(x):
            total += part
        return total

    def _parts(self, x: Tensor) -> Iterator[Tensor]:
        """What f(x) is the sum of, piece by piece."""
        problem = self.problem
        problem.calibrate(self._model, x)  # whatever else is measured at x is measured after this
        for client, count, weight in self._alone:
            samples = problem.data.samples(client, count)
            for inputs, targets in _chunks(samples):
                loss = problem.loss(problem.outputs(self._model, x, inputs), targets)
                yield scaled(problem.loss, loss, targets, samples.targets, weight)
        for group in self._groups:
            batch = problem.data.batches(group.clients, group.rows)(0)
            yield (group.weights * self._losses(x, batch)).sum()

    def _losses(self, x: Tensor, batch: Samples) -> Tensor:
        """Each client's loss, (S,), by one call of the model."""

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            return self.problem.loss(self.problem.outputs(self._model, x, inputs), targets)

        losses: Tensor = torch.func.vmap(loss)(batch.inputs, batch.targets)
        return losses

    def _goes_together(self) -> bool:
        """Whether model and loss can be computed for several clients at once."""
        first = self.problem.data.samples(0, 1)
        try:
            self._losses(self.problem.z0, Samples(first.inputs.unsqueeze(0), first.targets.unsqueeze(0)))
        except RuntimeError:  # such as .item() in the loss
            return False
        return True

    @torch.no_grad()
    def _unlike(self, x: Tensor) -> dict[str, Tensor]:
        """How unlike the clients are that are looked at, on the samples of theirs that f is taken on."""
        name, metric = ("accuracy", ACCURACY) if self.problem.classifies else ("loss", LOSS)
        values = []
        for client, count, _ in self._alone:
            sums = sum(
                metric.of(self.problem, self.problem.outputs(self._model, x, inputs), targets)
                for inputs, targets in _chunks(self.problem.data.samples(client, count))
            )
            values.append(metric.value(self.problem, torch.as_tensor(sums)).unsqueeze(0))
        for group in self._groups:
            batch = self.problem.data.batches(group.clients, group.rows)(0)
            values.append(self._accuracies(x, batch) if name == "accuracy" else self._losses(x, batch))
        return spread(name, torch.cat(values))

    def _accuracies(self, x: Tensor, batch: Samples) -> Tensor:
        """Each client's accuracy, (S,)."""
        outputs = self.problem.outputs(self._model, x, batch.inputs.flatten(0, 1))
        tables = right_and_counted(scores(self.problem, outputs), batch.targets.flatten(0, 1), ignored_by(self.problem))
        right, counted = (table.reshape(len(batch), -1) for table in tables)
        return (right & counted).sum(1).double() / counted.sum(1).clamp(min=1)


def spread(name: str, values: Tensor) -> dict[str, Tensor]:
    """How unlike clients are, from each one's accuracy or loss: mean, worst tenth, worst, standard deviation."""
    higher = name == "accuracy"
    return {
        f"client_{name}_mean": values.mean(),
        f"client_{name}_p10" if higher else f"client_{name}_p90": values.quantile(0.1 if higher else 0.9),
        f"client_{name}_worst": values.min() if higher else values.max(),
        f"client_{name}_std": values.std(correction=0),
    }


@dataclass(frozen=True, eq=False)
class _Group:
    """Clients of whom equally many samples are looked at."""

    clients: Tensor  # (S,)
    rows: Tensor  # (S, 1, count): their first samples, as one batch
    weights: Tensor  # (S,)


def _groups(parts: list[tuple[int, int, float]], piece: int, like: Tensor) -> list[_Group]:
    """Clients with equal counts, as many together as make a piece, from (client, count, weight)."""
    by_count: dict[int, list[tuple[int, float]]] = {}
    for client, count, weight in parts:
        by_count.setdefault(count, []).append((client, weight))
    groups = []
    for count, clients in sorted(by_count.items()):
        rows = torch.arange(count, device=like.device)
        for start in range(0, len(clients), piece // count):
            some = clients[start : start + piece // count]
            numbers, weights = zip(*some, strict=True)
            mine = torch.tensor(numbers, device=like.device)
            groups.append(_Group(mine, rows.expand(len(some), 1, count), like.new_tensor(weights)))
    return groups


def _looked_at(num_clients: int, wanted: int) -> Tensor:
    """The clients that f is taken over, in ascending order."""
    wanted = wanted or (_OF_A_POPULATION if num_clients > POPULATION else num_clients)
    if wanted >= num_clients:
        return torch.arange(num_clients)
    return draw_cohort(fixed_key(), num_clients, wanted)


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


def _named(prefix: str, name: str) -> str:
    return prefix + name.removeprefix("test_") if prefix else name


def _chunks(samples: Samples) -> zip[tuple[Tensor, Tensor]]:
    size = min(_CHUNK, _at_most(samples.targets, _TARGETS))
    return zip(torch.split(samples.inputs, size), torch.split(samples.targets, size), strict=True)


def _at_most(targets: Tensor, limit: int) -> int:
    """How many samples have so many targets, and at least one."""
    return max(1, limit // max(1, targets.shape[1:].numel()))
