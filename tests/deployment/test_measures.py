"""What a server records of its model: all that was asked for, where it has the samples that it takes."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedcef.deployment import without_data
from fedcef.deployment.measures import measures_of, unmeasured
from fedcef.problems.problem import Problem
from fedcef.runs.settings import Settings
from fedcef.simulation.evaluation import Evaluator

SPREAD = {f"client_accuracy_{which}" for which in ("mean", "p10", "worst", "std")}


def settings(**options):
    return Settings(num_clients=4, eval={"metrics": ["balanced_accuracy"], **options})


@pytest.fixture
def problem():
    torch.manual_seed(0)

    def samples(count):
        return torch.randn(count, 3), torch.arange(count) % 2

    clients = [samples(4 + 2 * i) for i in range(4)]
    return Problem.build(nn.Linear(3, 2), nn.CrossEntropyLoss(), clients, test=samples(10), validation=samples(6))


def test_a_server_with_the_data_measures_as_the_simulator_does(problem):
    asked = settings(clients=2, per_client=True)
    found = measures_of(asked, problem)(problem.z0, None)
    step = asked.build_algorithm(problem).step
    expected = Evaluator(problem, step, metrics=["balanced_accuracy"], clients=2, per_client=True)(problem.z0)
    assert found == expected
    assert found.keys() >= SPREAD
    assert unmeasured(asked, problem) == ""


def test_a_server_without_data_keeps_the_measures_of_its_validation_set(problem):
    found = measures_of(settings(), without_data(problem))(problem.z0, None)
    whole = measures_of(settings(), problem)(problem.z0, None)
    shared = {"accuracy", "balanced_accuracy", "density", "density_1e-4"}
    validated = {"validation_accuracy", "validation_balanced_accuracy", "validation_loss"}
    assert found.keys() == {*shared, *validated, "test_loss"}
    assert {name: found[name] for name in shared | validated} == {name: whole[name] for name in shared | validated}


def test_a_validation_set_alone_is_measured_too(problem):
    found = measures_of(settings(), without_data(replace(problem, test=None)))(problem.z0, None)
    validated = {"validation_accuracy", "validation_balanced_accuracy", "validation_loss"}
    assert found.keys() == {"density", "density_1e-4", *validated}


def test_measures_that_a_server_without_data_cannot_have_are_named(problem):
    said = unmeasured(settings(clients=2, per_client=True), without_data(problem))
    assert said.startswith("eval.per_client and eval.clients: these measures are of the clients' own samples")
    assert unmeasured(settings(), without_data(problem)) == ""
