"""Copies of modules: what a problem has is its own, whatever a module holds and whatever becomes of it."""

import threading

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcef import FedAvg, run
from fedcef.core.errors import ProblemError
from fedcef.oracles.dropout import Copy
from fedcef.problems.copying import copied
from fedcef.problems.problem import Problem

G = torch.Generator().manual_seed(0)
DATA = [(torch.randn(12, 4, generator=G), torch.randint(0, 3, (12,), generator=G)) for _ in range(2)]


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


def trained(problem):
    return run(problem, FedAvg(local_lr=0.1, local_steps=3), rounds=2, batch_size=4).parameters


def test_a_model_that_is_loaded_after_a_run_does_not_move_the_start_of_the_next():
    mine = model()
    problem = Problem.build(mine, cross_entropy, DATA, buffers="mean")
    first = trained(problem)
    mine.load_state_dict(first)  # running statistics, too
    second = trained(problem)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_model_may_be_frozen_or_thawed_after_it_was_handed_in(frozen):
    mine = model()
    mine[0].requires_grad_(frozen)
    problem = Problem.build(mine, cross_entropy, DATA, buffers="frozen")
    expected = trained(problem)
    mine.requires_grad_(not frozen)
    found = trained(problem)
    assert found.keys() == mine.state_dict().keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_values_of_frozen_parameters_lie_in_one_place():
    mine = model()
    mine[0].requires_grad_(False)
    problem = Problem.build(mine, cross_entropy, DATA, buffers="frozen")
    for other in (problem.model, Copy.of(problem.model, problem.statistics).model):
        assert other[0].weight.data_ptr() == mine[0].weight.data_ptr()
        assert other[2].weight.data_ptr() != mine[2].weight.data_ptr()
        assert other[1].running_mean.data_ptr() != mine[1].running_mean.data_ptr()
    handed_out = run(problem, FedAvg(local_lr=0.1), rounds=1).model
    assert handed_out[0].weight.data_ptr() != mine[0].weight.data_ptr()


class Keeps(nn.Linear):
    """Keeps what it has computed, as hooks that look at activations do."""

    def forward(self, x):
        self.last = super().forward(x)
        self.all = {"by name": [self.last, (self.last,)]}
        return self.last


@pytest.mark.parametrize("used", [False, True])
def test_a_model_may_keep_its_activations(used):
    mine = Keeps(4, 3)
    if used:
        mine(DATA[0][0]).sum().backward()
        last = copied(mine).last
        assert torch.equal(last, mine.last)
        assert not last.requires_grad
    assert trained(Problem.build(mine, cross_entropy, DATA))["weight"].shape == (3, 4)


def test_a_model_may_hold_what_holds_itself():
    mine = nn.Linear(4, 3)
    mine.nodes, mine.ring = {}, []
    mine.nodes["next"] = mine.nodes
    mine.ring += [mine.ring, mine(DATA[0][0])]
    other = copied(mine)
    assert other.nodes["next"] is other.nodes
    assert other.ring[0] is other.ring
    assert torch.equal(other.ring[1], mine.ring[1])
    assert trained(Problem.build(mine, cross_entropy, DATA))["weight"].shape == (3, 4)


def test_what_cannot_be_copied_is_told():
    mine = nn.Linear(4, 3)
    mine.lock = threading.Lock()
    with pytest.raises(ProblemError, match="The model cannot be copied, as it must be for the clients to train it"):
        Problem.build(mine, cross_entropy, DATA)
