"""Clients' samples from elsewhere than one table: oracles and evaluation get the same bits."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.oracle import make_oracle
from fedcef.problems.client_data import ClientData, Samples
from fedcef.problems.problem import Problem
from fedcef.simulation.evaluation import Evaluator


class Loaded(ClientData):
    """Reads a client when it is asked for."""

    def __init__(self, load, sizes):
        self.load, self.sizes, self.read = load, sizes, []

    def samples(self, client, count=None):
        self.read.append(client)
        return self.load(client)[:count]

    def tables(self, clients):
        return stack([self.samples(client) for client in clients.tolist()])

    def batches(self, clients, rows):
        mine = [self.samples(client) for client in clients.tolist()]
        return lambda k: stack([samples[chosen] for samples, chosen in zip(mine, rows[:, k], strict=True)])


def stack(samples):
    return Samples(torch.stack([s.inputs for s in samples]), torch.stack([s.targets for s in samples]))


def problem(count, equal):
    g = torch.Generator().manual_seed(0)
    sizes = [6 if equal else 2 + i % 5 for i in range(count)]
    clients = [(torch.randn(n, 4, generator=g), torch.randint(0, 3, (n,), generator=g)) for n in sizes]
    return Problem.build(nn.Linear(4, 3), cross_entropy, clients)


def with_loaded(task):
    """The same problem, whose table is nowhere but in the source."""
    loaded = Loaded(task.client_samples, task.sizes)
    return replace(task, data=loaded), loaded


@pytest.mark.parametrize(("oracle", "batch_size"), [("loop", 0), ("loop", 3), ("stacked", 0), ("stacked", 3)])
def test_gradients_of_clients_that_are_read_when_asked_for(oracle, batch_size):
    task = problem(5, equal=True)
    other, loaded = with_loaded(task)
    training = Training(batch_size=batch_size, oracle=oracle, clients_per_round=2)
    round_ = Rounds(training, 5).at(3)
    for k in range(2):
        expected, found = (make_oracle(p, training).for_round(round_, 2)(task.z0, k) for p in (task, other))
        assert torch.equal(found, expected)
    assert set(loaded.read) == set(round_.clients.tolist())  # nobody else is read


@pytest.mark.parametrize("count", [4, 140])
def test_evaluation_of_clients_that_are_read_when_asked_for(count):
    task = problem(count, equal=False)
    assert Evaluator(with_loaded(task)[0], 0.1)(task.z0) == Evaluator(task, 0.1)(task.z0)


def test_a_client_s_first_samples():
    task = problem(3, equal=False)
    assert len(task.data.samples(2, 3)) == 3
    assert len(task.data.samples(2, 100)) == len(task.data.samples(2)) == 4
