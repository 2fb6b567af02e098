"""A validation set beside the test set."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedcef
from fedcef import FedAvg, Problem
from fedcef.core.errors import ProblemError
from fedcef.python.folder import fingerprint
from fedcef.simulation.evaluation import Evaluator


def table(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=g).double(), torch.randint(0, 3, (n,), generator=g)


def classes(**sets):
    torch.manual_seed(0)
    return Problem.build(nn.Linear(4, 3).double(), cross_entropy, [table(9), table(12, 1)], **sets)


def test_a_validation_set_is_measured_as_a_test_set_is():
    problem = classes(test=table(30, 2), validation=table(20, 3))
    found = Evaluator(problem, 0.1, metrics=["f1_macro"])(problem.z0)
    other = classes(test=table(20, 3))
    expected = Evaluator(other, 0.1, metrics=["f1_macro", "loss"])(other.z0)
    assert found["validation_accuracy"] == expected["accuracy"]
    assert found["validation_loss"] == expected["test_loss"]
    assert found["validation_f1_macro"] == expected["f1_macro"]
    without = classes(test=table(30, 2))
    before = Evaluator(without, 0.1, metrics=["f1_macro"])(without.z0)
    assert {name: value for name, value in found.items() if not name.startswith("validation_")} == before
    assert fingerprint(problem) != fingerprint(without)


def test_a_run_is_stopped_by_it_without_a_test_set():
    problem = classes(validation=table(20, 3)).to("cpu", torch.float64)
    stop = {"measure": "validation_accuracy", "patience": 2}
    history = fedcef.run(problem, FedAvg(local_lr=0.1), rounds=40, eval_every=1, stop=stop)
    assert history.last["round"] < 40
    best = max(history["validation_accuracy"])
    assert history["validation_accuracy"][-3] == best
    assert "accuracy" not in history.measures


def test_what_does_not_fit_is_refused():
    inputs, targets = table(5)
    with pytest.raises(ProblemError, match="cannot take a batch of the validation set"):
        classes(validation=(inputs[:, :2], targets))
    targets[4] = 7
    with pytest.raises(ProblemError, match="The validation set has the label 7"):
        classes(validation=(inputs, targets))
