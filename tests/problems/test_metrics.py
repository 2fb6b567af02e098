"""Measures on a test set by name, against scikit-learn and by hand."""

from functools import partial
from math import exp, log

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, mse_loss

from fedcef.core.errors import ConfigError, ProblemError
from fedcef.problems.metrics import auc
from fedcef.problems.problem import Problem
from fedcef.problems.text import from_texts, next_token_loss
from fedcef.simulation import evaluation
from fedcef.simulation.evaluation import Evaluator

G = torch.Generator().manual_seed(0)


def problem(targets, outputs=None, loss=mse_loss):
    """A problem whose model hands out its inputs, times one: the outputs are known."""
    outputs = outputs if outputs is not None else targets + torch.randn(targets.shape, generator=G).double()

    class Same(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Parameter(torch.ones((), dtype=torch.float64))

        def forward(self, x):
            return x * self.one

    return Problem.build(Same(), loss, [(outputs[:20], targets[:20])], test=(outputs, targets))


def measured(task, *metrics, chunk=7):
    """The measures, in chunks that leave a rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "_CHUNK", chunk)
        return Evaluator(task, 0.1, metrics=metrics)(task.z0)


@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3)])
def test_regression_is_as_in_scikit_learn(shape):
    of = pytest.importorskip("sklearn.metrics")
    targets = 2000 + torch.randn(shape, generator=G).double()
    task = problem(targets)
    found = measured(task, "mse", "rmse", "mae", "r2")
    pair = targets.numpy(), task.test.inputs.numpy()
    assert found["mse"] == pytest.approx(of.mean_squared_error(*pair), rel=1e-12)
    assert found["rmse"] == pytest.approx(of.root_mean_squared_error(*pair), rel=1e-12)
    assert found["mae"] == pytest.approx(of.mean_absolute_error(*pair), rel=1e-12)
    assert found["r2"] == pytest.approx(of.r2_score(*pair), rel=1e-10)
    assert found["test_loss"] == pytest.approx(found["mse"], rel=1e-12)
    assert "accuracy" not in found


def test_r2_of_a_constant_target():
    targets = torch.ones(10, dtype=torch.float64)
    assert measured(problem(targets, targets), "r2")["r2"] == 1
    assert measured(problem(targets, targets + 1), "r2")["r2"] == 0


def test_labels_are_as_in_scikit_learn():
    of = pytest.importorskip("sklearn.metrics")
    targets = (torch.rand(60, 4, generator=G) < 0.3).double()
    outputs = (torch.randn(60, 4, generator=G) * 2).round().double() / 2 + targets - 0.6  # with ties
    found = measured(problem(targets, outputs, binary_cross_entropy_with_logits), "f1_micro", "f1_macro", "auc")
    y, scores = targets.numpy(), outputs.numpy()
    assert found["f1_micro"] == pytest.approx(of.f1_score(y, scores > 0, average="micro"), rel=1e-12)
    assert found["f1_macro"] == pytest.approx(of.f1_score(y, scores > 0, average="macro"), rel=1e-12)
    assert found["auc"] == pytest.approx(of.roc_auc_score(y, scores), rel=1e-12)
    assert found["test_loss"] == pytest.approx(float(binary_cross_entropy_with_logits(outputs, targets)), rel=1e-12)


def test_classes_are_as_in_scikit_learn():
    of = pytest.importorskip("sklearn.metrics")
    targets = torch.randint(0, 7, (90,), generator=G)
    outputs = torch.randn(90, 8, generator=G).double()  # class 7 is predicted now and then, and never right
    found = measured(problem(targets, outputs, cross_entropy), "f1_micro", "f1_macro", "top5_accuracy", "loss")
    y, predicted = targets.numpy(), outputs.argmax(1).numpy()
    assert found["f1_micro"] == pytest.approx(of.f1_score(y, predicted, average="micro"), rel=1e-12)
    assert found["f1_macro"] == pytest.approx(of.f1_score(y, predicted, average="macro"), rel=1e-12)
    labels = list(range(8))
    top = of.top_k_accuracy_score(y, outputs.numpy(), k=5, labels=labels)
    assert found["top5_accuracy"] == pytest.approx(top, rel=1e-12)
    assert found["test_loss"] == pytest.approx(float(cross_entropy(outputs, targets)), rel=1e-12)
    seven = outputs[:, :7]
    one_against_rest = of.roc_auc_score(y, seven.softmax(1).numpy(), multi_class="ovr")
    assert float(auc(seven, targets)) == pytest.approx(one_against_rest, rel=1e-12)


def test_auc_by_hand():
    scores = torch.tensor([0.1, 0.4, 0.35, 0.8])
    labels = torch.tensor([0.0, 0.0, 1.0, 1.0])
    assert float(auc(scores, labels)) == 0.75
    assert float(auc(torch.zeros(4), labels)) == 0.5
    with pytest.raises(ProblemError, match="auc has no label"):
        auc(scores, torch.ones(4))


def test_targets_that_a_loss_ignores_are_not_counted():
    targets = torch.randint(0, 5, (6, 9), generator=G)
    targets[0] = 4
    targets[3, 2:] = 4
    outputs = torch.randn(6, 5, 9, generator=G).double()
    task = problem(targets, outputs, nn.CrossEntropyLoss(ignore_index=4))
    found = measured(task, "perplexity", chunk=1)  # the first chunk has nothing to predict
    expected = float(cross_entropy(outputs, targets, ignore_index=4))
    assert found["test_loss"] == pytest.approx(expected, rel=1e-12)
    assert found["perplexity"] == pytest.approx(exp(expected), rel=1e-12)


class Letters(nn.Module):
    """The scores of the next byte from this one."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(256, 256, dtype=torch.float64)

    def forward(self, x):
        return self.table(x).transpose(1, 2)


def test_language_models_have_a_loss_unasked_and_bits_per_byte():
    data = from_texts(["to be or not to be, that is the question", "whether 'tis nobler in the mind"], context=4)
    torch.manual_seed(0)
    task = Problem.build(Letters(), next_token_loss, data, test=data.samples(0))
    found = measured(task, "perplexity", "bits_per_byte", chunk=3)
    nats = float(next_token_loss(task.model(task.test.inputs), task.test.targets).detach())
    assert found["test_loss"] == pytest.approx(nats, rel=1e-12)
    assert found["perplexity"] == pytest.approx(exp(nats), rel=1e-12)
    assert found["bits_per_byte"] == pytest.approx(nats / log(2), rel=1e-12)
    data.bytes_per_token = 4.0
    moved = task.to("cpu", torch.float64)
    assert measured(moved, "bits_per_byte")["bits_per_byte"] == pytest.approx(nats / log(2) / 4, rel=1e-12)


def test_bits_per_byte_needs_bytes():
    targets = torch.randint(0, 5, (6, 9), generator=G)
    task = problem(targets, torch.randn(6, 5, 9, generator=G).double(), cross_entropy)
    with pytest.raises(ConfigError, match="how many bytes a token has"):
        measured(task, "bits_per_byte")


@pytest.mark.parametrize(("metric", "said"), [("mse", "one output for each target"), ("r2", "one output")])
def test_a_metric_that_does_not_fit_is_refused(metric, said):
    targets = torch.randint(0, 3, (20,), generator=G)
    with pytest.raises(ConfigError, match=said):
        measured(problem(targets, torch.randn(20, 3, generator=G).double(), cross_entropy), metric)


def test_what_is_recorded_unasked_may_be_asked_for():
    targets = torch.randint(0, 3, (20,), generator=G)
    task = problem(targets, torch.randn(20, 3, generator=G).double(), cross_entropy)
    asked = measured(task, "accuracy", "test_loss")
    assert asked == measured(task, "loss")


def test_labels_have_an_accuracy_and_numbers_have_none():
    labels = torch.randint(0, 2, (50, 3), generator=G).double()
    task = problem(labels, torch.randn(50, 3, generator=G).double(), binary_cross_entropy_with_logits)
    assert "accuracy" not in measured(task)
    right = (task.test.inputs > 0) == (labels > 0)
    assert measured(task, "accuracy")["accuracy"] == pytest.approx(float(right.double().mean()))
    with pytest.raises(ConfigError, match="accuracy is for classes, or for labels that are 0 or 1; take mse or r2"):
        measured(problem(labels + 0.5), "accuracy")


def test_classes_are_refused_where_there_are_none():
    with pytest.raises(ConfigError, match="perplexity or bits_per_byte is for classes on axis 1"):
        measured(problem(torch.zeros(20, dtype=torch.float64)), "perplexity")


def test_windows_of_tokens_go_a_few_at_a_time():
    """A chunk has at most so many targets; samples with one target go as they always did."""
    targets = torch.randint(0, 3, (40, 4096), generator=G)
    lengths = []
    task = problem(targets, torch.randn(40, 3, 1, generator=G).double().expand(40, 3, 4096), cross_entropy)
    task.model.register_forward_pre_hook(lambda module, inputs: lengths.append(len(inputs[0])))
    Evaluator(task, 0.1)(task.z0)
    assert max(lengths) == 16_384 // 4096
    assert evaluation._at_most(torch.zeros(1000), 16_384) == 16_384
    assert evaluation._at_most(torch.zeros(10, 100_000), 16_384) == 1


def test_probabilities_are_compared_with_a_half():
    """A sigmoid's outputs are all above 0: by their sign every label would be there."""
    labels = torch.randint(0, 2, (50, 3), generator=G).double()
    scores = torch.randn(50, 3, generator=G).double()
    named = ("accuracy", "f1_micro", "f1_macro", "auc")
    by_sign = measured(problem(labels, scores, binary_cross_entropy_with_logits), *named)
    by_half = measured(problem(labels, scores.sigmoid(), nn.BCELoss()), *named)
    assert {name: by_half[name] for name in named} == pytest.approx({name: by_sign[name] for name in named})


def test_probabilities_of_two_classes():
    labels = torch.randint(0, 2, (50,), generator=G)
    scores = torch.randn(50, generator=G).double()

    def loss(outputs, targets):
        return binary_cross_entropy(outputs, targets.double())

    found = measured(problem(labels, scores.sigmoid(), loss), "balanced_accuracy")
    assert found["accuracy"] == pytest.approx(float(((scores > 0) == (labels > 0)).double().mean()))
    recalls = [((scores > 0) == (labels > 0))[labels == label].double().mean() for label in (0, 1)]
    assert found["balanced_accuracy"] == pytest.approx(float(sum(recalls) / 2))


@pytest.mark.parametrize("shape", [(60,), (60, 4)])
def test_one_hot_targets_are_classes(shape):
    classes = torch.randint(0, 5, shape, generator=G)
    outputs = torch.randn(shape[0], 5, *shape[1:], generator=G).double()
    one_hot = nn.functional.one_hot(classes, 5).movedim(-1, 1).double()
    named = ("accuracy", "f1_macro", "balanced_accuracy", "top5_accuracy", "auc")
    expected = measured(problem(classes, outputs, cross_entropy), *named)
    found = measured(problem(one_hot, outputs, cross_entropy), *named)
    assert {name: found[name] for name in named} == pytest.approx({name: expected[name] for name in named})


@pytest.mark.parametrize("ignored", [3, 255])
def test_every_measure_ignores_what_the_loss_ignores(ignored):
    """However the loss is told; a class that is among the outputs cannot be seen within a function."""
    targets = torch.randint(0, 4, (60,), generator=G)
    targets[::3] = ignored
    outputs = torch.randn(60, 4, generator=G).double()
    named = ("accuracy", "test_loss", "f1_macro", "balanced_accuracy", "top5_accuracy", "auc")
    kept = targets != ignored
    losses = [nn.CrossEntropyLoss(ignore_index=ignored), partial(cross_entropy, ignore_index=ignored)]
    losses += [lambda outputs, targets: cross_entropy(outputs, targets, ignore_index=ignored)] if ignored > 3 else []
    expected = measured(problem(targets[kept], outputs[kept], cross_entropy), *named)
    for loss in losses:
        found = measured(problem(targets, outputs, loss), *named)
        assert {name: found[name] for name in named} == pytest.approx({name: expected[name] for name in named})


def test_measures_that_take_true_values_first_are_refused():
    """r² of scikit-learn would be another number, without a word."""
    of = pytest.importorskip("sklearn.metrics")
    task = problem(torch.randn(50, generator=G).double())
    for metric in (of.r2_score, "sklearn.metrics:r2_score"):
        with pytest.raises(ConfigError, match="The metric r2_score takes the true values first, as those of scikit-le"):
            measured(task, metric)

    def mine(outputs, targets):
        return of.r2_score(targets, outputs)

    found = measured(task, "r2", mine)
    assert found["mine"] == pytest.approx(found["r2"])
