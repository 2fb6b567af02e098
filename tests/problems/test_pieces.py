"""Losses that are computed part by part are those of the whole, whatever they ignore and however they weigh classes."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, nll_loss

from fedcef import Problem
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.oracle import make_oracle
from fedcef.problems.pieces import divisor, scaled, share
from fedcef.problems.text import next_token_loss
from fedcef.simulation.evaluation import Evaluator

WEIGHTS = torch.tensor([0.1, 1.0, 5.0, 2.0])
LOSSES = {
    "function": (cross_entropy, -100),
    "next_token_loss": (next_token_loss, -100),
    "module": (nn.CrossEntropyLoss(), -100),
    "weights": (nn.CrossEntropyLoss(weight=WEIGHTS), -100),
    "another class ignored": (nn.CrossEntropyLoss(ignore_index=2), 2),
    "partial": (partial(cross_entropy, weight=WEIGHTS, ignore_index=1, label_smoothing=0.1), 1),
    "partial of partial": (partial(partial(cross_entropy, ignore_index=1), ignore_index=3), 3),
}
"""Each with what it ignores."""
EXACT = {"rtol": 0, "atol": 2e-6}


class Padded(nn.Module):
    """Scores (B, 4, T) of inputs (B, T)."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Embedding(10, 4)

    def forward(self, tokens):
        return self.scores(tokens).transpose(1, 2)


def padded(padding, samples=7, length=6):
    """Sequences of unlike length, of which the last one has nothing but padding."""
    tokens = torch.randint(10, (samples, length), generator=torch.Generator().manual_seed(0))
    targets = torch.randint(4, (samples, length), generator=torch.Generator().manual_seed(1))
    for row in range(samples):
        targets[row, row + 1 if row else 0 :] = padding
    return tokens, targets.flip(0)


@pytest.mark.parametrize(("loss", "padding"), LOSSES.values(), ids=LOSSES)
def test_parts_with_what_they_were_divided_by_are_the_whole(loss, padding):
    targets = padded(padding)[1]
    scores = torch.randn(len(targets), 4, targets.shape[1], generator=torch.Generator().manual_seed(0))
    whole = loss(scores, targets)
    for size in (1, 2, 3, 7):
        parts = zip(scores.split(size), targets.split(size), strict=True)
        total = sum(scaled(loss, loss(part, here), here, targets) for part, here in parts)
        torch.testing.assert_close(total, whole, **EXACT)


@pytest.mark.parametrize(("loss", "padding"), LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("micro_batch", [1, 2, 3, 6])
def test_micro_batches_add_up_to_the_whole_gradient(loss, padding, micro_batch):
    problem = Problem.build(Padded(), loss, [padded(padding), padded(padding)])

    def gradients(**options):
        training = Training(batch_size=0, oracle="loop", **options)
        oracle = make_oracle(problem, training).for_round(Rounds(training, 2).at(0), 1)
        return oracle(problem.z0, 0)

    torch.testing.assert_close(gradients(micro_batch=micro_batch), gradients(), **EXACT)


def test_losses_of_more_samples_than_go_at_once_are_those_of_all():
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(2500, 3, generator=generator), torch.randint(4, (2500,), generator=generator)
    targets[1000:1990] = 0  # of little weight, and most of the second thousand
    for loss in (nn.CrossEntropyLoss(weight=WEIGHTS), nn.CrossEntropyLoss(ignore_index=0)):
        problem = Problem.build(nn.Linear(3, 4), loss, [(inputs, targets)], (inputs, targets))
        measures = Evaluator(problem, 1.0, metrics=["loss"])(problem.z0)
        expected = loss(problem.outputs(problem.model, problem.z0, inputs), targets).item()
        assert measures["train_loss"] == pytest.approx(expected, abs=2e-6)
        assert measures["test_loss"] == pytest.approx(expected, abs=2e-6)


def test_a_thousand_ignored_samples_leave_the_loss_a_number():
    inputs, targets = torch.ones(2000, 3), torch.arange(2000) % 4
    targets[1000:] = -100
    problem = Problem.build(nn.Linear(3, 4), cross_entropy, [(inputs, targets)])
    expected = cross_entropy(problem.outputs(problem.model, problem.z0, inputs[:1000]), targets[:1000]).item()
    assert Evaluator(problem, 1.0)(problem.z0)["train_loss"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("count", [500, 2500])
def test_the_loss_of_a_client_whose_labels_are_all_ignored_is_no_number_however_many_there_are(count):
    clients = [(torch.ones(count, 3), torch.arange(count) % 4), (torch.ones(count, 3), torch.full((count,), -100))]
    problem = Problem.build(nn.Linear(3, 4), cross_entropy, clients)
    alone = Problem.build(problem.model, cross_entropy, clients[:1])
    evaluator = Evaluator(problem, 1.0)
    assert math.isnan(evaluator(problem.z0)["train_loss"])
    _, gradient = evaluator.loss_and_gradient(problem.z0)
    torch.testing.assert_close(2 * gradient, Evaluator(alone, 1.0).loss_and_gradient(problem.z0)[1])


def test_where_every_target_counts_alike_the_share_has_the_same_bits():
    like = torch.zeros(())
    for whole in range(1, 200):
        for part in (1, whole // 3, whole - 1, whole):
            targets = torch.zeros(whole, 5, dtype=torch.int64)
            known = share(cross_entropy, targets[:part], targets, like, 0.1)
            assert torch.equal(known, torch.tensor(0.1 * part / whole))
            assert share(nn.functional.mse_loss, targets[:part], targets, like, 0.1) == 0.1 * part / whole


def test_losses_that_do_not_tell():
    targets = torch.zeros(3, dtype=torch.int64)
    assert divisor(lambda outputs, targets: cross_entropy(outputs, targets), targets) is None
    assert divisor(nn.BCEWithLogitsLoss(), targets) is None
    assert divisor(cross_entropy, torch.zeros(3, 4)) is None  # shares of classes: a mean over samples
    assert divisor(partial(nll_loss, ignore_index=0), targets) == 0
