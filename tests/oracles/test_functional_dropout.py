"""Dropout that is no layer, as in the attention of transformers: it is noticed, and repeats as layers' does."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout

from fedcef import FedAvg, run
from fedcef.core.errors import ProblemError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.dropout import draws_unseen
from fedcef.oracles.loop import ClientLoop
from fedcef.problems.client_data import PooledData
from fedcef.problems.problem import Problem


class Functional(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers, self.last = nn.Sequential(*layers), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(dropout(self.layers(x), 0.5, self.training))


def problem(*layers, **options):
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    data = [(torch.randn(8, 6, generator=g), torch.randint(0, 3, (8,), generator=g)) for _ in range(3)]
    return Problem.build(Functional(*layers), cross_entropy, data, **options)


@pytest.mark.parametrize(
    ("layers", "options"),
    [((), {}), ((nn.Linear(6, 6), nn.Dropout(0.3)), {}), ((nn.BatchNorm1d(6),), {"buffers": "mean"})],
    ids=["alone", "beside a layer", "with batch normalisation"],
)
def test_runs_repeat(layers, options):
    task, method = problem(*layers, **options), FedAvg(local_lr=0.1, local_steps=2)
    assert draws_unseen(task)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = run(task, method, rounds=2, batch_size=4, oracle="loop").parameters
    assert torch.equal(torch.get_rng_state(), before)  # the user's own random numbers are left alone
    torch.manual_seed(2)
    second = run(task, method, rounds=2, batch_size=4, oracle="loop").parameters
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = run(task, method, rounds=2, batch_size=4, oracle="loop", seed=5).parameters
    assert not torch.equal(first["last.weight"], other["last.weight"])


def test_a_deployed_client_draws_as_in_the_simulator():
    task = problem()
    alone = replace(task, data=PooledData.of([task.client_samples(2)]))
    options, who = Training(seed=7, batch_size=4), torch.tensor([2])
    round_ = Rounds(Training(seed=7), 3).at(0, who)
    expected = ClientLoop(task, options).for_round(round_, 3)(task.z0, 1)
    found = ClientLoop(alone, options).for_round(round_, 3, rows=torch.zeros(1, dtype=torch.int64))(task.z0, 1)
    assert torch.equal(found, expected)


def test_layers_alone_draw_nothing_unseen():
    task = problem(nn.Dropout(0.3), nn.BatchNorm1d(6), buffers="frozen")
    task.model.forward = lambda x: task.model.last(x)
    assert not draws_unseen(task)


def test_all_clients_at_once_cannot_draw_so():
    with pytest.raises(ProblemError, match=r"write them as nn\.Dropout modules, .* or take oracle = 'loop'"):
        run(problem(), FedAvg(local_lr=0.1), rounds=1, oracle="stacked")


def test_clients_are_computed_one_by_one_without_being_asked():
    task, method = problem(), FedAvg(local_lr=0.1, local_steps=2)
    asked = run(task, method, rounds=2, batch_size=4, oracle="loop").parameters
    unasked = run(task, method, rounds=2, batch_size=4).parameters
    assert all(torch.equal(asked[name], unasked[name]) for name in asked)
