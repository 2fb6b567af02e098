"""What people try first, and cannot: a sentence says what to do instead."""

import re
from collections import deque
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from fedcef import FedAvg, run
from fedcef.core.errors import ConfigError, ProblemError
from fedcef.problems.problem import Problem
from fedcef.problems.text import from_texts, next_token_loss

G = torch.Generator().manual_seed(0)
X, Y = torch.randn(12, 5, generator=G), torch.randint(0, 3, (12,), generator=G)
TOKENS = torch.randint(0, 9, (12, 5), generator=G)
IMAGES = torch.zeros(12, 8, 8, 3, dtype=torch.uint8)


class Wrapped(nn.Module):
    """Returns its scores in something else."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.kind = nn.Linear(5, 3), kind

    def forward(self, x):
        return self.kind(self.layer(x))


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 3, dtype=torch.complex64))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.weight).abs()


def embedding(**options):
    return nn.Sequential(nn.Embedding(9, 4, **options), nn.Flatten(), nn.Linear(20, 3))


def images(channels):
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.Flatten(), nn.LazyLinear(3))


@pytest.mark.parametrize(
    ("model", "loss", "data", "sentence"),
    [
        (
            lambda: nn.DataParallel(nn.Linear(5, 3)),
            cross_entropy,
            (X, Y),
            "in DataParallel; give what is in it, model.mo",
        ),
        (lambda: Spectrum(), cross_entropy, (X, Y), "and are complex64; keep complex ones as two real numbers"),
        (lambda: embedding(max_norm=1.0), cross_entropy, (TOKENS, Y), "The layer 0 has max_norm, which changes its we"),
        (lambda: embedding(sparse=True), cross_entropy, (TOKENS, Y), "The layer 0 has sparse gradients, and a step ne"),
        (lambda: nn.Linear(5, 3), nn.CrossEntropyLoss, (X, Y), "The loss is the class CrossEntropyLoss; make one, Cro"),
        (
            lambda: Wrapped(lambda y: {"y": y}),
            cross_entropy,
            (X, Y),
            "the model returns a dict: wrap it in a module that",
        ),
        (
            lambda: nn.Linear(5, 3),
            cross_entropy,
            (X, Y[:, None]),
            "; take the targets' last axis off, targets.squeeze(1)",
        ),
        (
            lambda: nn.Linear(5, 1),
            mse_loss,
            (X, Y.float()),
            "same size; end the model with nn.Flatten(0), so that it r",
        ),
        (
            lambda: nn.Linear(5, 1),
            binary_cross_entropy_with_logits,
            (X, Y > 0),
            "; end the model with nn.Flatten(0), so that it returns one number for each sample",
        ),
        (lambda: nn.Conv2d(3, 4, 3), cross_entropy, (IMAGES, Y), "move the channels to axis 1, inputs.permute(0, 3, 1"),
        (
            lambda: nn.Conv2d(1, 4, 3),
            cross_entropy,
            (X[:, :, None] * X[:, None], Y),
            "for the channels, inputs[:, None]",
        ),
        (
            lambda: nn.Linear(5, 3),
            cross_entropy,
            (X, TOKENS, Y),
            "client 0 are 3 tables; give a pair of inputs and tar",
        ),
        (lambda: nn.Linear(5, 3), cross_entropy, (X, [0, 1]), "The data of client 0 has 12 inputs but 2 targets."),
        (
            lambda: nn.Linear(5, 3),
            cross_entropy,
            [(object(), 0)] * 2,
            "; make arrays of images and the like, by numpy.as",
        ),
        (lambda: nn.Linear(5, 3), cross_entropy, ({"z": X}, Y), "(inputs z (5,) float32, targets (2,) torch.int64)"),
    ],
)
def test_what_to_do_instead(model, loss, data, sentence):
    with pytest.raises(ProblemError, match=re.escape(sentence)):
        Problem.build(model(), loss, [data])


def test_a_frozen_embedding_may_be_bounded():
    model = embedding(max_norm=1.0)
    model[0].requires_grad_(False)
    assert Problem.build(model, cross_entropy, [(TOKENS, Y)]).dim == 63


def test_positions_where_classes_must_be_are_found_where_there_are_equally_many():
    """A window of 256 bytes has as many positions as there are classes: the loss alone would take either order."""
    tokens = nn.Sequential(nn.Embedding(256, 4), nn.Linear(4, 256))
    data = from_texts(["abc" * 200], context=256)
    with pytest.raises(
        ProblemError, match="have the positions on axis 1 and the 256 classes on axis 2; the loss takes"
    ):
        Problem.build(tokens, next_token_loss, data)

    class Transposed(nn.Sequential):
        def forward(self, x):
            return super().forward(x).transpose(1, 2)

    Problem.build(Transposed(*tokens), next_token_loss, data)


def test_the_test_set_is_tried_as_it_is_measured():
    """Models that return more while they train, and batch normalisation of a single sample."""

    class Helped(Wrapped):
        def forward(self, x):
            return (self.layer(x), self.layer(x)) if self.training else self.layer(x)

    def loss(outputs, targets):
        return (
            sum(cross_entropy(o, targets) for o in outputs)
            if isinstance(outputs, tuple)
            else cross_entropy(outputs, targets)
        )

    assert Problem.build(Helped(None), loss, [(X, Y)], test=(X, Y)).test is not None
    norm = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
    assert Problem.build(norm, cross_entropy, [(X, Y)], test=(X[:1], Y[:1]), buffers="mean").test is not None


@pytest.mark.parametrize("buffers", ["mean", "local"])
@pytest.mark.parametrize("single", [0, 1])
def test_a_client_with_one_sample_and_batch_normalisation(buffers, single):
    clients = [(X, Y), (X, Y)]
    clients[single] = X[:1], Y[:1]
    norm = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
    problem = Problem.build(norm, cross_entropy, clients, buffers=buffers)
    run(problem, FedAvg(local_lr=0.1), rounds=1, batch_size=4)
    with pytest.raises(ConfigError, match=f"a step of client {single} takes its only sample, of which batch normalis"):
        run(problem, FedAvg(local_lr=0.1), rounds=1, batch_size=0)
    pixels = nn.Sequential(nn.Unflatten(1, (1, 5)), nn.BatchNorm1d(1), nn.Flatten(), nn.Linear(5, 3))
    run(Problem.build(pixels, cross_entropy, clients, buffers=buffers), FedAvg(local_lr=0.1), rounds=1, batch_size=0)


def test_what_vmap_has_no_rule_for_is_computed_by_the_loop():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4)), nn.ReLU(), nn.Linear(4, 3))
    problem = Problem.build(model, cross_entropy, [(X, Y), (X, Y)], buffers="mean")
    with pytest.raises(ProblemError, match="cannot be computed for all clients at once; take oracle = 'loop'"):
        run(problem, FedAvg(local_lr=0.1), rounds=1)
    run(problem, FedAvg(local_lr=0.1), rounds=1, oracle="loop")


class Column(Sequence):
    """As the columns of a Hugging Face data set are."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, place):
        return self.values[place]


@pytest.mark.parametrize("named", [False, True])
def test_columns_that_are_sequences(named):
    inputs = {"input": Column(X.tolist())} if named else Column(X.tolist())
    words = Column([("a", "b", "c")[n] for n in Y])
    one = Problem.build(nn.Linear(5, 3), cross_entropy, [(inputs, words)] * 2)
    whose = Column(["me", "you"] * 6)
    both = Problem.build(nn.Linear(5, 3), cross_entropy, (inputs, words), client_ids=whose)
    assert one.classes == both.classes == tuple(np.array(["a", "b", "c"])[Y.unique()])
    assert both.client_ids == ("me", "you")


def test_sequences_without_slices():
    found = Problem.build(nn.Linear(5, 3), cross_entropy, [(X, deque(Y.tolist()))])
    assert torch.equal(found.train.targets, Y)


@pytest.mark.parametrize("value", [9, -1])
@pytest.mark.parametrize("several", [False, True])
def test_values_for_which_an_embedding_has_no_row(value, several):
    """They are found in any sample of any client, not in the first ones alone."""

    class Second(nn.Sequential):
        def forward(self, *inputs):
            return super().forward(inputs[-1])

    def given(tokens):
        return (X, tokens) if several else tokens

    far = TOKENS.clone()
    far[7, 3] = value
    model = Second(*embedding())
    low, high = int(far[7].min()), int(far[7].max())
    sentence = (
        f"has inputs from {low} to {high}, which the model cannot take (index out of range in self); give nn.Embed"
    )
    with pytest.raises(ProblemError, match=re.escape(f"Client 1 {sentence}")):
        Problem.build(model, cross_entropy, [(given(TOKENS), Y), (given(far), Y)])
    with pytest.raises(ProblemError, match=re.escape(f"The test set {sentence}")):
        Problem.build(model, cross_entropy, [(given(TOKENS), Y)], test=(given(far), Y))


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_compiled_part_without_parameters_of_its_own_is_taken():
    model = nn.Sequential(torch.jit.script(Doubled()), nn.Linear(5, 3))
    problem = Problem.build(model, cross_entropy, [(X, Y)] * 2)
    expected = Problem.build(nn.Sequential(Doubled(), model[1]), cross_entropy, [(X, Y)] * 2)
    method = FedAvg(local_lr=0.1, local_steps=2)
    found, wanted = (run(each, method, rounds=2, batch_size=4, oracle="loop") for each in (problem, expected))
    assert torch.equal(found.parameters["1.weight"], wanted.parameters["1.weight"])
    with pytest.raises(ProblemError, match=r"The model is compiled by torch\.jit"):
        Problem.build(torch.jit.script(model[1]), cross_entropy, [(X, Y)] * 2)
