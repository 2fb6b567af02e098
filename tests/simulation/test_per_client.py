"""How unlike clients are: quantiles of their accuracies or losses."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from fedcef.problems.problem import Problem
from fedcef.simulation import evaluation
from fedcef.simulation.evaluation import Evaluator, spread


def classes(sizes):
    g = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    data = [(torch.randn(n, 4, generator=g).double(), torch.randint(0, 3, (n,), generator=g)) for n in sizes]
    return Problem.build(nn.Linear(4, 3).double(), cross_entropy, data)


def test_spread_by_hand():
    accuracies = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 0.0], dtype=torch.float64)
    found = {name: float(value) for name, value in spread("accuracy", accuracies).items()}
    assert found == pytest.approx(
        {
            "client_accuracy_mean": 0.5,
            "client_accuracy_p10": 0.1,
            "client_accuracy_worst": 0.0,
            "client_accuracy_std": 0.1**0.5,
        }
    )
    losses = {name: float(value) for name, value in spread("loss", accuracies).items()}
    assert losses["client_loss_p90"] == pytest.approx(0.9)
    assert losses["client_loss_worst"] == 1.0


@pytest.mark.parametrize("one_by_one", [100, 2], ids=["one by one", "together"])
@pytest.mark.parametrize("train_samples", [0, 20])
def test_accuracy_of_every_client(one_by_one, train_samples, monkeypatch):
    monkeypatch.setattr(evaluation, "_ONE_BY_ONE", one_by_one)
    monkeypatch.setattr(evaluation, "_CHUNK", 4)
    problem = classes([5, 12, 5, 8, 30])
    share = train_samples / 60 if train_samples else 1
    values = []
    for client, size in enumerate([5, 12, 5, 8, 30]):
        mine = problem.client_samples(client, max(1, round(share * size)))
        values.append((problem.model(mine.inputs).argmax(1) == mine.targets).double().mean())
    found = Evaluator(problem, 0.1, train_samples, per_client=True)(problem.z0)
    expected = {name: float(value) for name, value in spread("accuracy", torch.stack(values)).items()}
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("one_by_one", [100, 2], ids=["one by one", "together"])
def test_loss_of_every_client_without_classes(one_by_one, monkeypatch):
    monkeypatch.setattr(evaluation, "_ONE_BY_ONE", one_by_one)
    data = [(torch.randn(6, 3).double(), torch.full((6, 1), float(i)).double()) for i in range(4)]
    problem = Problem.build(nn.Linear(3, 1).double(), mse_loss, data)
    found = Evaluator(problem, 0.1, per_client=True)(problem.z0)
    losses = [float(mse_loss(problem.model(x), y).detach()) for x, y in data]
    assert found["client_loss_mean"] == pytest.approx(found["train_loss"], rel=1e-12)
    assert found["client_loss_worst"] == pytest.approx(max(losses), rel=1e-12)
    assert found["client_loss_std"] == pytest.approx(float(torch.tensor(losses).double().std(correction=0)), rel=1e-6)


def test_nothing_of_it_unasked():
    problem = classes([5, 12])
    assert not [name for name in Evaluator(problem, 0.1)(problem.z0) if name.startswith("client_")]
