"""One table for all clients, whose rows are named, and a public way to deal a data set out."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedcef
from fedcef import ConfigError, Problem, ProblemError
from fedcef.problems.data.partitions import partition as parts_of

X = torch.arange(24.0).view(6, 4)
Y = torch.tensor([0, 1, 2, 0, 1, 2])


def build(**options):
    return Problem.build(nn.Linear(4, 3), cross_entropy, **options)


@pytest.mark.parametrize(
    ("column", "names"),
    [
        (["south", "north", "south", "west", "north", "south"], ("north", "south", "west")),
        (np.array([7, 3, 7, 9, 3, 7]), (3, 7, 9)),
        (torch.tensor([1, 0, 1, 2, 0, 1]), (0, 1, 2)),
    ],
)
def test_a_column_says_whose_each_row_is(column, names):
    problem = build(clients=(X, Y), client_ids=column)
    assert problem.client_ids == names
    assert problem.sizes.tolist() == [2, 3, 1]
    assert problem.client_samples(0).inputs[:, 0].tolist() == [4, 16]  # in the order of the table
    assert problem.client_samples(1).targets.tolist() == [0, 2, 2]
    assert problem.client_samples(2).inputs.tolist() == [X[3].tolist()]


def test_a_table_of_pandas_and_a_list_of_samples():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X.numpy(), columns=list("abcd")).assign(y=Y.numpy(), who=list("bababc"))
    problem = build(clients=(frame[list("abcd")], frame["y"]), client_ids=frame["who"])
    assert problem.client_ids == ("a", "b", "c")
    assert problem.client_samples(0).targets.tolist() == [1, 0]
    rows = build(clients=[*zip(X, Y, strict=True)], client_ids=list("bababc"))
    assert torch.equal(rows.train.inputs, problem.train.inputs)


@pytest.mark.parametrize(
    ("clients", "ids", "says"),
    [
        ((X, Y), [1, 2], "client_ids must say whose each of the 6 samples is; they have the shape (2,)."),
        ((X, Y), [1.0, 2, 3, 4, 5, 6], "client_ids must be whole numbers or words, not torch.float32"),
        ((X, Y), ["a", None, "b", "a", "a", "b"], "client_ids are missing for some samples"),
        ((X, Y), None, "The clients are one pair of tables; say whose each row is by client_ids=…"),
        (fedcef.clients.from_arrays(X, Y, [[0], [1]]), [0] * 6, "this source knows its clients"),
    ],
)
def test_what_is_no_such_column(clients, ids, says):
    with pytest.raises(ProblemError, match=re.escape(says)):
        build(clients=clients, client_ids=ids)


@pytest.mark.parametrize(
    ("by", "options"),
    [
        ("iid", {}),
        ("dirichlet", {"alpha": 0.3, "min_size": 2}),
        ("shards", {"classes_per_client": 1}),
        ("lognormal", {"sigma": 0.5}),
        ("zipf", {"labels": "dirichlet", "alpha": 1.0, "min_size": 3}),
    ],
)
def test_a_deal_is_that_of_the_settings(by, options):
    labels = torch.arange(200) % 4
    owners = fedcef.partition(labels, 5, by=by, seed=3, **options)
    parts = parts_of(by, labels, 5, 3, **options)
    for client, part in enumerate(parts):
        assert (owners == client).nonzero().flatten().tolist() == sorted(part.tolist())
    words = np.array(["w", "x", "y", "z"])[labels]
    assert torch.equal(fedcef.partition(words, 5, by=by, seed=3, **options), owners)
    assert not torch.equal(fedcef.partition(labels, 5, by=by, seed=4, **options), owners)


def test_a_deal_makes_clients():
    x, y = torch.randn(100, 4), torch.arange(100) % 3
    problem = build(clients=(x, y), client_ids=fedcef.partition(y, 5, alpha=1.0, min_size=2, seed=1))
    assert problem.num_clients == 5
    assert problem.client_ids == (0, 1, 2, 3, 4)
    assert int(problem.sizes.sum()) == 100


def test_what_cannot_be_dealt():
    prices = torch.rand(50)
    assert fedcef.partition(prices, 5, by="iid").bincount().tolist() == [10] * 5
    assert fedcef.partition(prices, 5, by="lognormal", min_size=2).bincount().min() >= 2
    for labels, by, says in (
        (
            prices,
            "dirichlet",
            "The partition dirichlet goes by classes, and the labels are torch.float32; take by='iid'.",
        ),
        (Y, "random", "there is no partition 'random'; there are iid, dirichlet,"),
        (Y, "by_column", "needs no partition; give it as client_ids."),
        (X, "iid", "The labels have the shape (6, 4); there must be one for each sample."),
    ):
        with pytest.raises(ConfigError, match=re.escape(says)):
            fedcef.partition(labels, 2, by=by)


def test_a_seed_that_is_no_number():
    with pytest.raises(ConfigError, match="seed"):
        fedcef.partition([0, 1] * 20, 4, by="iid", seed="x")
