"""Mistakes in a problem: each is a sentence when the problem is built, not an exception in the middle of a run."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from fedcef.core.errors import ProblemError
from fedcef.problems.problem import Problem
from fedcef.regularizers import L1


def table(count=6, seed=0, features=4):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(count, features, generator=g), torch.randint(0, 3, (count,), generator=g)


def labelled(*labels):
    return table(len(labels))[0], torch.tensor(labels)


def build(model=None, loss=cross_entropy, clients=None, **options):
    return Problem.build(
        model if model is not None else nn.Linear(4, 3), loss, clients or [table(), table()], **options
    )


def refused(sentence):
    return pytest.raises(ProblemError, match=re.escape(sentence))


@pytest.mark.parametrize(
    ("model", "what"),
    [(nn.Linear, "the class Linear"), (lambda x: x, "a function"), ("mlp", "a str")],
    ids=["class", "function", "name"],
)
def test_a_model_that_is_no_module(model, what):
    with refused(f"The model is {what}; it must be a torch.nn.Module"):
        build(model)


def test_a_loss_that_is_no_function():
    with refused("The loss is a str; it must be a function of outputs and targets."):
        build(loss="cross_entropy")


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda outputs, targets: cross_entropy(outputs, targets).item(), "it returned a float, not a tensor."),
        (
            lambda outputs, targets: cross_entropy(outputs, targets).detach(),
            "has a gradient; leave .item(), .detach(),",
        ),
    ],
)
def test_a_loss_without_a_gradient(loss, says):
    with torch.no_grad(), refused(says):
        build(loss=loss)


def test_clients_that_are_no_list():
    for clients in (None, 3):
        with refused(f"The clients are {clients}; give a list"):
            Problem.build(nn.Linear(4, 3), cross_entropy, clients)


@pytest.mark.parametrize("regularizer", ["l1", L1])
def test_a_regulariser_that_is_none(regularizer):
    with refused(f"The regulariser is {regularizer!r}; it must be an object such as L1(1e-4)."):
        build(regularizer=regularizer)


def test_a_test_set_of_another_width():
    with refused("cannot take a batch of the test set (inputs (2, 5) torch.float32"):
        build(test=table(features=5))


@pytest.mark.parametrize("label", [3, 17, -1])
def test_a_label_out_of_range_is_told_with_its_client(label):
    with refused(
        f"Client 1 has the label {label}, but the model has 3 outputs, for the labels 0 to 2; number the classes from 0"
    ):
        build(clients=[table(), labelled(0, 1, 2, label, 0)])
    with refused(f"The test set has the label {label}, but"):
        build(test=labelled(0, 1, label))


@pytest.mark.parametrize("label", [-100, 255])
def test_labels_that_the_loss_ignores_are_let_through(label):
    loss = nn.CrossEntropyLoss(ignore_index=label)
    assert build(loss=loss, clients=[table(), labelled(0, 1, label, 2)]).num_clients == 2


@pytest.mark.parametrize("labels", [np.array(["cat", "dog"]), np.array(["cat", None], dtype=object)])
def test_words_among_numbers(labels):
    with refused("The labels of client 1 are words, and those of client 0 are numbers; give all as words."):
        build(clients=[table(), (table(2)[0], labels)])


def test_words_of_which_some_are_missing():
    with refused("The targets of client 1 are missing for some samples; leave these"):
        build(clients=[(table(2)[0], np.array(label, dtype=object)) for label in (["cat", "dog"], ["cat", None])])


def test_labels_as_a_list_of_numbers():
    inputs, targets = table()
    assert torch.equal(build(clients=[(inputs, targets.tolist())]).train.targets, targets)


@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize(
    "loss", [nn.CrossEntropyLoss(reduction="sum"), lambda o, t: cross_entropy(o, t, reduction="sum") / 64]
)
def test_a_sum_is_no_mean(loss, count):
    with refused("The loss doubles with the batch: it is a sum.  It must be the mean over the batch"):
        build(loss=loss, clients=[table(count)])


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.1])),
        nn.CrossEntropyLoss(label_smoothing=0.1),
        lambda o, t: cross_entropy(o, t) + 1,
        lambda o, t: 0 * cross_entropy(o, t),
        lambda o, t: (o @ o.T).softmax(-1).diagonal().log().neg().mean(),
    ],
    ids=["weighted", "smoothed", "shifted", "zero", "contrastive"],
)
def test_other_losses_are_let_through(loss):
    assert build(loss=loss).dim == 15


def test_parameters_of_a_loss_are_not_forgotten_silently():
    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.temperature = nn.Parameter(torch.ones(()))

        def forward(self, outputs, targets):
            return cross_entropy(outputs / self.temperature, targets)

    loss = Learned()
    with refused("The loss has parameters of its own (temperature), which would not be trained"):
        build(loss=loss)
    loss.requires_grad_(False)
    assert build(loss=loss).dim == 15


def test_class_weights_move_with_the_problem():
    problem = build(loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.1])))
    double = problem.to("cpu", torch.float64)
    value = double.loss(double.outputs(double.model, double.z0, double.train.inputs), double.train.targets)
    assert value.dtype == torch.float64
    assert problem.loss.weight.dtype == torch.float32


def test_outputs_that_have_no_accuracy_are_refused_where_there_is_a_test_set():
    def loss(outputs, targets):
        return cross_entropy(outputs.flatten(0, 1), targets.flatten())

    tokens = torch.randint(0, 4, (6, 10), generator=torch.Generator().manual_seed(0))
    with refused("There is no accuracy of outputs (2, 10, 4) for targets (2, 10)"):
        build(nn.Embedding(5, 4), loss, [(tokens, tokens)], test=(tokens, tokens))
    assert build(nn.Embedding(5, 4), loss, [(tokens, tokens)]).dim == 20


def test_trying_out_leaves_random_numbers_alone():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    torch.manual_seed(0)
    model(table(2)[0])  # one batch of client 0 has always been drawn
    expected = torch.rand(3)
    torch.manual_seed(0)
    build(model, test=table())
    assert torch.equal(torch.rand(3), expected)


class Recomputed(nn.Linear):
    """A layer whose activations are computed again on the way back, in the way that needs inputs with gradients."""

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=True)


def test_checkpoints_that_find_no_gradients():
    with refused("call torch.utils.checkpoint with use_reentrant=False"):
        Problem.build(Recomputed(4, 3), cross_entropy, [table()])


def test_outputs_that_are_no_tensor_have_no_accuracy():
    class Named(nn.Linear):
        def forward(self, x):
            return {"logits": super().forward(x)}

    def loss(outputs, targets):
        return cross_entropy(outputs["logits"], targets)

    build(Named(4, 3), loss)
    with refused("There is no accuracy of a dict: with a test set the model must return one tensor; wrap it"):
        build(Named(4, 3), loss, test=table())
