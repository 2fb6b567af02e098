"""What cannot be trained on is told when it is read, in the sentences of clients in memory, with the client."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from fedcef import FedAvg, FedcefError, Problem, clients, run
from fedcef.core.errors import ProblemError

from .sources import from_function, problem, tables


def refused(sentence):
    return pytest.raises(FedcefError, match=re.escape(sentence))


def with_other(change):
    """Clients of whom number 3 is not like the others."""
    shards = tables()
    shards[3] = change(*shards[3])
    return shards


def nan(x, y):
    return torch.where(torch.arange(len(x))[:, None] == 1, torch.nan, x), y


UNLIKE = "The data of client 3 does not fit client 0's: "
CHANGES = {
    "shape": (
        lambda x, y: (x[:, :3], y),
        UNLIKE + "a sample's input and target have the shapes ((3,), ()), not ((4,),",
    ),
    "type": (lambda x, y: (x, y.float()), UNLIKE + "inputs and targets are float32 and float32, not float32 and int64"),
    "label": (lambda x, y: (x, y + 3), "Client 3 has the label 3, but the model has 3 outputs, for the labels 0 to 2"),
    "not a number": (nan, "The inputs of client 3 have NaN or infinite values in 1 of"),
    "empty": (lambda x, y: (x[:0], y[:0]), "The data of client 3 is empty; leave the client out or give it samples."),
    "lengths": (lambda x, y: (x, y[:1]), "The data of client 3 has 6 inputs but 1 targets."),
    "words": (lambda x, y: (x, ["cat"] * len(x)), "The targets of client 3 are words or other objects, such as 'cat'"),
    "nothing": (lambda x, y: None, "The data of client 3 must be an (inputs, targets) pair of tensors or a map-style"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_client_that_does_not_fit(kind):
    change, sentence = CHANGES[kind]
    task = problem(from_function(with_other(change), None))  # client 0 is as it should be
    task.client_samples(2)
    with refused(sentence):
        task.client_samples(3)
    with refused(sentence):
        run(task, FedAvg(local_lr=0.1), rounds=1)


@pytest.mark.parametrize("kind", ["shape", "type", "label", "not a number"])
def test_a_sample_of_a_data_set_that_does_not_fit(kind):
    change, sentence = CHANGES[kind]
    shards = with_other(change)
    rows = [(a, b) for x, y in shards for a, b in zip(x, y, strict=True)]
    ends = np.cumsum([len(x) for x, _ in shards])
    data = clients.from_dataset(rows, np.split(np.arange(len(rows)), ends[:-1]))
    task = problem(data)
    who, first = torch.tensor([2, 3]), torch.tensor([[[0]], [[1]]])
    task.data.batches(who[:1], first[:1])(0)
    with refused(sentence.partition(" in 1 of")[0]):
        task.data.batches(who, first)(0)


def test_the_first_client_is_looked_at_when_the_problem_is_built():
    (x, y), *others = shards = tables()
    with refused("Client 0 has the label 3, but the model has 3 outputs"):
        problem(from_function([(x, torch.where(torch.arange(len(y)) == 2, 3, y)), *others], None))
    with refused("The model or the loss cannot take a batch of client 0 (inputs (2, 3) torch.float32"):
        problem(from_function([(x[:, :3], y) for x, y in shards], None))


def test_labels_that_the_loss_ignores_are_let_through():
    shards = with_other(lambda x, y: (x, torch.where(torch.arange(len(y)) == 1, -100, y)))
    task = problem(from_function(shards, None))
    assert -100 in task.client_samples(3).targets


def test_sizes_that_are_not_kept():
    data = clients.from_function(lambda client: tables()[client], num_clients=12, sizes=4)
    assert data.sizes_of(torch.tensor([0, 1])).tolist() == [4, 4]
    assert len(data.samples(1)) == 4
    with refused("Client 2 has 5 samples, but was said to have 4."):
        data.samples(2)
    with refused("The sizes must be one whole number of at least 1 for each of 12 clients."):
        clients.from_function(lambda client: tables()[client], num_clients=12, sizes=[1, 2])


def test_a_function_that_fails():
    def load(client):
        return tables()[client] if client < 2 else {}["no such key"]

    with refused("The data of client 5 cannot be read: 'no such key'"):
        clients.from_function(load, num_clients=9).samples(5)
    with refused("num_clients is 0; it must be greater than or equal to 1."):
        clients.from_function(load, num_clients=0)


@pytest.mark.parametrize(
    ("indices", "sentence"),
    [
        ([[0, 1], [2, 9]], "Client 1 holds sample 9, which does not exist; samples are numbered 0 to 5."),
        ([[0, 1], [-1]], "Client 1 holds sample -1, which does not exist"),
        ([[0, 1], []], "The data of client 1 is empty; leave the client out or give it samples."),
        ([], "The data of client 0 is empty"),
        ([[0.5]], "The indices are of the type float64; they must be numbers of samples, 0, 1, 2, …."),
        (3, "The indices must be one sequence of sample numbers for each client"),
        ([["a"]], "The indices are of the type <U1; they must be numbers of samples"),
    ],
)
def test_indices_that_are_none(indices, sentence):
    inputs, targets = torch.zeros(6, 4), torch.zeros(6, dtype=torch.int64)
    for make in (
        lambda: clients.from_arrays(inputs, targets, indices),
        lambda: clients.from_dataset(TensorDataset(inputs, targets), indices),
    ):
        with pytest.raises(ProblemError, match=re.escape(sentence)):
            make()


def test_a_table_of_indices():
    inputs, targets = torch.arange(6.0).view(6, 1), torch.zeros(6, dtype=torch.int64)
    data = clients.from_arrays(inputs, targets, torch.tensor([[0, 1], [5, 0]], dtype=torch.int32))
    assert data.equal_sizes
    assert data.samples(1).inputs.flatten().tolist() == [5, 0]


def test_a_label_out_of_range_in_arrays_is_told_with_its_client():
    inputs, targets = torch.zeros(6, 4), torch.tensor([0, 1, 2, 3, 0, 7])
    with refused("Client 1 has the label 3, but the model has 3 outputs"):
        Problem.build(nn.Linear(4, 3), cross_entropy, clients.from_arrays(inputs, targets, [[0, 1], [2, 3]]))


def test_a_data_set_that_is_none():
    with refused("The data set is generator; it must be map-style: len(dataset), dataset[i]."):
        clients.from_dataset((x for x in ()), [[0]])


def test_there_is_no_one_table():
    task = problem(from_function(tables(), None))
    with refused("The clients' samples do not lie in one table; ask for those of some by problem.data."):
        _ = task.train
