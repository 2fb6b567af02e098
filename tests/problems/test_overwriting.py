"""Models that change their inputs in place, as many do where batches are copies: samples stay as they are."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcef import FedAvg, Problem, run
from fedcef.core.errors import ProblemError

G = torch.Generator().manual_seed(0)
CLIENTS = [(255 * torch.rand(12, 5, generator=G), torch.randint(0, 3, (12,), generator=G)) for _ in range(3)]


class Scaled(nn.Module):
    def __init__(self, in_place, norm=False):
        super().__init__()
        torch.manual_seed(0)
        self.in_place, self.norm, self.layer = in_place, nn.BatchNorm1d(5) if norm else nn.Identity(), nn.Linear(5, 3)

    def forward(self, x):
        if self.in_place:
            x /= 255
        else:
            x = x / 255
        return self.layer(self.norm(x))


class Masked(Scaled):
    def forward(self, x, mask):
        return super().forward(x) * mask


@pytest.mark.parametrize("batch_size", [0, 4])
@pytest.mark.parametrize("oracle", ["loop", "stacked"])
@pytest.mark.parametrize("buffers", ["constant", "mean", "local"])
def test_a_model_may_scale_its_inputs_in_place(batch_size, oracle, buffers):
    def trained(in_place):
        clients = [(inputs.clone(), targets) for inputs, targets in CLIENTS]
        model = Scaled(in_place, norm=buffers != "constant")
        problem = Problem.build(model, cross_entropy, clients[1:], test=clients[0], buffers=buffers)
        assert problem.overwrites == in_place
        options = {"rounds": 3, "eval_every": 1, "batch_size": batch_size, "oracle": oracle}
        history = run(problem, FedAvg(local_lr=0.5, local_steps=3), **options)
        assert all(torch.equal(mine, theirs) for (mine, _), (theirs, _) in zip(clients, CLIENTS, strict=True))
        assert torch.equal(problem.client_samples(0).inputs, CLIENTS[1][0])
        return history

    found, expected = trained(True), trained(False)
    assert found["objective"] == expected["objective"]
    assert found["accuracy"] == expected["accuracy"]
    assert all(torch.equal(found.parameters[name], expected.parameters[name]) for name in expected.parameters)


def test_one_of_several_inputs():
    clients = [((inputs.clone(), torch.ones(12, 1)), targets) for inputs, targets in CLIENTS]
    problem = Problem.build(Masked(True), cross_entropy, clients)
    before = problem.train.inputs.clone()
    run(problem, FedAvg(local_lr=0.5), rounds=2, batch_size=0)
    assert torch.equal(problem.train.inputs, before)


class Rectified(nn.Linear):
    def forward(self, x):
        return super().forward(torch.relu_(x))


class HalvedAfterwards(nn.Linear):
    def forward(self, x):
        return super().forward(x if self.training else x.mul_(0.5))


@pytest.mark.parametrize("kind", [Rectified, HalvedAfterwards])
def test_it_is_noticed_where_the_first_samples_stay_as_they_are_or_only_evaluation_writes(kind):
    torch.manual_seed(0)
    inputs, targets = CLIENTS[0]
    problem = Problem.build(kind(5, 3), cross_entropy, [CLIENTS[1], (-inputs, targets)])
    before = problem.train.inputs.clone()
    run(problem, FedAvg(local_lr=0.01), rounds=2, batch_size=0, oracle="loop")
    assert torch.equal(problem.train.inputs, before)


def test_others_are_given_the_samples_themselves():
    problem = Problem.build(Scaled(False), cross_entropy, CLIENTS)
    assert problem.given(CLIENTS[0][0]) is CLIENTS[0][0]


def test_sparse_tensors_are_refused():
    with pytest.raises(
        ProblemError, match=r"The inputs of client 0 are a sparse tensor; make it dense by to_dense\(\)"
    ):
        Problem.build(nn.Linear(5, 3), cross_entropy, [(CLIENTS[0][0].to_sparse(), CLIENTS[0][1])])
