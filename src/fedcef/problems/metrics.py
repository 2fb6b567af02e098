"""Measures of a model on a test set, by name.

Most are sums over the samples: they are taken chunk by chunk, so that the outputs for the whole test set are never in
memory together.  Those that are not, such as an area under a curve and functions of the user's own, get all outputs.

    loss, test_loss            the problem's own loss; recorded as test_loss
    accuracy                   of classes, which have it unasked, or of labels that are 0 or 1: by the output's sign
    mse, rmse, mae, r2         regression; several targets of a sample count alike
    f1_micro, f1_macro, auc    labels: one output for each (its sign, or its rank, decides), or classes
    balanced_accuracy          the mean accuracy over the classes that occur
    top5_accuracy              whether the right class is among the five highest
    perplexity, bits_per_byte  language models, from the cross-entropy of the outputs
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fedcef.core.errors import ConfigError, ProblemError
from fedcef.core.parts import choose, imported, is_path
from fedcef.problems.accuracy import IGNORED, balanced_accuracy, right_and_counted
from fedcef.problems.outputs import as_classes, ignored_by, scores
from fedcef.problems.pieces import divisor

if TYPE_CHECKING:
    from fedcef.problems.problem import Problem

Whole = Callable[[Tensor, Tensor], Tensor]
"""metric(outputs, targets): one number, of all outputs and targets of the test set at once."""

TOP = 5


@dataclass(frozen=True)
class Sums:
    """A measure that is a function of sums over the samples."""

    of: Callable[[Problem, Tensor, Tensor], Tensor]
    """of(problem, outputs, targets): the sums of a chunk, in one shape for all chunks."""
    value: Callable[[Problem, Tensor], Tensor]
    """value(problem, sums): the number that is recorded."""


Metric = Sums | Whole


def find_metric(name: str | Whole) -> tuple[str, Metric]:
    """A metric by its name, or a function of the user's own or its import path; and what it is called in records."""
    if not isinstance(name, str):
        called = str(getattr(name, "__name__", type(name).__name__))
        if not called.isidentifier():
            raise ConfigError(f"The metric {called} has no name to be recorded by; define it as a function.")
        _check_order(called, name)
        return called, name
    if is_path(name):
        called, function = name.rpartition(":")[2], imported("eval.metrics", name)
        _check_order(called, function)
        return called, function
    return "test_loss" if name == "loss" else name, METRICS[choose("eval.metrics", name, METRICS)]


def _check_order(called: str, function: Whole) -> None:
    try:
        first = next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):  # of some functions that are not written in Python
        return
    if first in ("y_true", "labels_true"):
        raise ConfigError(
            f"The metric {called} takes the true values first, as those of scikit-learn do; metrics get (outputs, "
            f"targets): define a function that calls {called}(targets, outputs)."
        )


def of_all(problem: Problem, name: str, metric: Whole, outputs: Tensor, targets: Tensor) -> Tensor:
    """A measure of all outputs and targets at once; functions of the user's own get them as they are."""
    if METRICS.get(name) is metric:
        outputs, targets = scores(problem, outputs), as_classes(problem, outputs, targets)
    return as_number(name, metric(outputs, targets))


def as_number(name: str, value: object) -> Tensor:
    """What a metric returned, if it is one number."""
    number = torch.as_tensor(value)
    if number.ndim:
        raise ConfigError(f"The metric {name} returned shape {tuple(number.shape)}; it must return one number.")
    return number


def tells_loss(problem: Problem) -> bool:
    """Whether the test loss is recorded unasked: where samples have no class, or several, as windows of tokens have."""
    return not problem.classifies or problem.example.targets[:1].numel() > 1


# sums of the problem's own loss and of hits


def _hits(problem: Problem, outputs: Tensor, targets: Tensor) -> Tensor:
    targets = as_classes(problem, outputs, targets)
    if targets.is_floating_point() and not bool(((targets == 0) | (targets == 1)).all()):
        raise ConfigError(
            "The metric accuracy is for classes, or for labels that are 0 or 1; take mse or r2 for numbers."
        )
    right, counted = right_and_counted(scores(problem, outputs), targets)
    return torch.stack([(right & counted).sum(), counted.sum()])


def _hits_in_top(problem: Problem, outputs: Tensor, targets: Tensor) -> Tensor:
    targets = _classes("top5_accuracy", outputs, as_classes(problem, outputs, targets))
    among = (outputs.topk(min(TOP, outputs.shape[1]), dim=1).indices == targets.unsqueeze(1)).any(1)
    counted = _counted(problem, outputs, targets)
    return torch.stack([(among & counted).sum(), counted.sum()])


def _losses(problem: Problem, outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss is the mean over the targets that are there to be predicted, by their weights, or over the samples."""
    divided_by = divisor(problem.loss, targets)
    if divided_by is not None:
        counted = divided_by
    elif not problem.classifies:
        counted = torch.tensor(len(targets), device=targets.device)
    elif outputs.numel() == targets.numel():  # two classes by a sign, of which one may be below 0
        counted = (targets != ignored_by(problem)).sum()
    else:
        counted = _counted(problem, outputs, targets).sum()
    mean = problem.loss(outputs, targets).double()
    return torch.stack([torch.where(counted > 0, mean * counted, 0), counted.double()])


def _ratio(problem: Problem, sums: Tensor) -> Tensor:
    return sums[0].double() / sums[1].clamp(min=1)


def _counted(problem: Problem, outputs: Tensor, targets: Tensor) -> Tensor:
    return (targets >= 0) & (targets < outputs.shape[1]) & (targets != ignored_by(problem))


# regression


def _errors(problem: Problem, outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each target of a sample the number of samples, the squared and the absolute errors: (3, D)."""
    if outputs.numel() != targets.numel():
        raise ConfigError(
            f"The metrics mse, rmse, mae and r2 are for one output for each target; outputs are {tuple(outputs.shape)} "
            f"and targets {tuple(targets.shape)}."
        )
    error = (outputs.reshape(targets.shape).double() - targets.double()).reshape(len(targets), -1)
    return torch.stack([torch.ones_like(error).sum(0), error.square().sum(0), error.abs().sum(0)])


def _r2(problem: Problem, sums: Tensor) -> Tensor:
    """1 - squared errors / squared deviations from the mean; of a target that is constant 1 or 0."""
    assert problem.test is not None
    targets = problem.test.targets.double().reshape(len(problem.test), -1)
    spread = (targets - targets.mean(0)).square().sum(0)
    flat = (sums[1] == 0).double()
    return torch.where(spread > 0, 1 - sums[1] / spread, flat).mean()


# labels and classes


def _confusions(problem: Problem, outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each label how often it is found, found wrongly, and missed: (3, L)."""
    targets = as_classes(problem, outputs, targets)
    if outputs.numel() == targets.numel():
        found, true = _as_labels(scores(problem, outputs), targets)
        return torch.stack([(found & true).sum(0), (found & ~true).sum(0), (~found & true).sum(0)])
    targets = _classes("f1", outputs, targets)
    predicted, counted = outputs.argmax(1), _counted(problem, outputs, targets)
    right = (predicted == targets) & counted
    wrong = (predicted != targets) & counted
    counts = torch.zeros(3, outputs.shape[1], dtype=torch.int64, device=outputs.device)
    kept = targets.clamp(min=0, max=outputs.shape[1] - 1)
    for row, (labels, which) in enumerate([(kept, right), (predicted, wrong), (kept, wrong)]):
        counts[row].index_add_(0, labels.flatten(), which.flatten().long())
    return counts


def _f1_micro(problem: Problem, sums: Tensor) -> Tensor:
    hits, false, missed = sums.sum(1).double().unbind()
    return 2 * hits / (2 * hits + false + missed).clamp(min=1)


def _f1_macro(problem: Problem, sums: Tensor) -> Tensor:
    """The mean over the labels that occur or are predicted."""
    hits, false, missed = sums.double().unbind()
    among = 2 * hits + false + missed
    return (2 * hits / among.clamp(min=1)).sum() / (among > 0).sum().clamp(min=1)


def auc(outputs: Tensor, targets: Tensor) -> Tensor:
    """The area under the ROC curve: how often a sample with a label is ranked above one without, ties counting half.

    The mean over the labels that some samples have and some have not; of classes, each against the rest by its
    probability.
    """
    if outputs.numel() == targets.numel():
        scores, (_, true) = outputs.reshape(len(targets), -1), _as_labels(outputs, targets)
    else:
        targets = _classes("auc", outputs, targets)
        scores = outputs.double().softmax(1).movedim(1, -1).flatten(0, -2)
        counted = (targets.flatten() >= 0) & (targets.flatten() < outputs.shape[1])
        scores, true = scores[counted], one_hot(targets.flatten()[counted], outputs.shape[1]).bool()
    areas = [
        _area(scores[:, label], true[:, label])
        for label in range(true.shape[1])
        if 0 < true[:, label].sum() < len(true)
    ]
    if not areas:
        raise ProblemError("auc has no label that some test samples have and some have not; leave it out.")
    return torch.stack(areas).mean()


def _area(scores: Tensor, true: Tensor) -> Tensor:
    """(rank sum of those with the label - the least that it can be) / pairs, with mean ranks for ties."""
    _, places, counts = scores.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    last = counts.cumsum(0).double()
    ranks: Tensor = (last - (counts - 1) / 2)[places]
    have: Tensor = true.sum().double()
    return (ranks[true].sum() - have * (have + 1) / 2) / (have * (len(true) - have))


def _as_labels(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Which labels are predicted and which there are: two tables (samples, labels)."""
    return outputs.reshape(len(targets), -1) > 0, targets.reshape(len(targets), -1) > 0


def _classes(name: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """The targets in the shape of the predicted classes."""
    if targets.is_floating_point() or outputs.ndim < 2 or outputs.numel() != targets.numel() * outputs.shape[1]:
        raise ConfigError(
            f"The metric {name} is for classes on axis 1 of the outputs, or one output for each label; outputs are "
            f"{tuple(outputs.shape)} and targets {tuple(targets.shape)}."
        )
    return targets.reshape(outputs.shape[:1] + outputs.shape[2:])


# language models


def _surprise(problem: Problem, outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of all targets, in nats, and their number."""
    targets = _classes("perplexity or bits_per_byte", outputs, targets)
    counted = _counted(problem, outputs, targets)
    labels = torch.where(counted, targets, IGNORED).flatten()
    nats = cross_entropy(outputs.movedim(1, -1).flatten(0, -2), labels, ignore_index=IGNORED, reduction="sum")
    return torch.stack([nats.double(), counted.sum().double()])


def _bits_per_byte(problem: Problem, sums: Tensor) -> Tensor:
    size: float | None = getattr(problem.data, "bytes_per_token", None)
    if size is None:
        raise ConfigError(
            "bits_per_byte needs to know how many bytes a token has, which only text of `fedcef.problems.text` says; "
            "take perplexity."
        )
    return _ratio(problem, sums) / (log(2) * size)


def _mean(problem: Problem, sums: Tensor, *, row: int, root: bool = False) -> Tensor:
    mean = sums[row] / sums[0]
    return (mean.sqrt() if root else mean).mean()


ACCURACY, LOSS = Sums(_hits, _ratio), Sums(_losses, _ratio)

METRICS: dict[str, Metric] = {
    "loss": LOSS,
    "test_loss": LOSS,
    "accuracy": ACCURACY,
    "mse": Sums(_errors, partial(_mean, row=1)),
    "rmse": Sums(_errors, partial(_mean, row=1, root=True)),
    "mae": Sums(_errors, partial(_mean, row=2)),
    "r2": Sums(_errors, _r2),
    "f1_micro": Sums(_confusions, _f1_micro),
    "f1_macro": Sums(_confusions, _f1_macro),
    "auc": auc,
    "balanced_accuracy": balanced_accuracy,
    "top5_accuracy": Sums(_hits_in_top, _ratio),
    "perplexity": Sums(_surprise, lambda problem, sums: _ratio(problem, sums).exp()),
    "bits_per_byte": Sums(_surprise, _bits_per_byte),
}

HIGHER = ("accuracy", "balanced_accuracy", "top5_accuracy", "auc", "f1", "f1_micro", "f1_macro", "r2")
"""What is better the higher it is; all other measures of the package are better the lower they are."""
