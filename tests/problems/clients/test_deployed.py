"""A deployed client reads its own samples alone, from any source, and computes the simulator's gradients."""

import sys

import numpy as np
import pytest
import torch

from fedcef import ProblemError
from fedcef.core.round import Rounds
from fedcef.deployment import one_client, without_data
from fedcef.deployment.client_problem import ClientGradients, problem_of_client
from fedcef.deployment.measures import measures_of
from fedcef.oracles.oracle import make_oracle
from fedcef.runs.settings import Settings

from .sources import SOURCES, problem, tables

MODULE = """
import torch
from torch import nn
from fedcef import Problem
from fedcef.clients import from_folder

def build_problem(num_clients, seed, clients, folder):
    torch.manual_seed(seed)
    data = from_folder(folder, "client-{}.npz", num_clients).only(clients)
    return Problem.build(nn.Linear(4, 3), nn.CrossEntropyLoss(), data, test=(torch.eye(4)[:3], torch.arange(3)))
"""


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("batch_size", [0, 2])
def test_one_client_of_any_source(name, batch_size, tmp_path):
    shards = tables()
    settings = Settings(num_clients=12, batch_size=batch_size, oracle="loop")
    whole, pooled = problem(SOURCES[name](shards, tmp_path)), problem(shards)
    cohort = torch.tensor([2, 7])
    expected = make_oracle(pooled, settings).for_round(Rounds(settings, 12).at(4, cohort), 3)(pooled.z0, 1)
    for row, client in enumerate(cohort.tolist()):
        alone = one_client(whole, client)
        assert (alone.num_clients, alone.test) == (1, None)
        found = ClientGradients(settings, alone, client).in_round(4, 3)(pooled.z0, 1)
        assert torch.equal(found, expected[row])


def test_a_server_s_part(tmp_path):
    server = without_data(problem(SOURCES["npz"](tables(), tmp_path)))
    assert (server.num_clients, len(server.example), int(server.sizes.sum())) == (12, 0, 0)
    assert measures_of(Settings(num_clients=12), server)(server.z0, None).keys() >= {"accuracy", "test_loss"}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A problem of one's own whose clients are files, of which this machine has client 2's."""
    (tmp_path / "sites.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    x, y = tables()[2]
    np.savez(tmp_path / "client-2.npz", inputs=x.numpy(), targets=y.numpy())
    yield Settings(num_clients=5, data={"name": "sites:build_problem", "folder": str(tmp_path)})
    sys.modules.pop("sites", None)


def test_a_client_needs_its_own_file_alone(own):
    alone = problem_of_client(own, 2)
    assert alone.num_clients == 1
    assert torch.equal(alone.client_samples(0).inputs, tables()[2][0])
    expected = one_client(problem(tables()), 2)
    found = ClientGradients(own, alone, 2).in_round(0, 2)(expected.z0, 1)
    assert torch.equal(found, ClientGradients(own, expected, 2).in_round(0, 2)(expected.z0, 1))
    server = own.build_problem(())
    assert (server.num_clients, len(server.example)) == (0, 0)
    with pytest.raises(ProblemError, match=r"^The data of client 3 cannot be read: .*client-3.npz"):
        problem_of_client(own, 3)


def test_a_drawn_population_is_the_same_on_every_machine():
    settings = Settings(num_clients=1_000_000, data={"name": "digits", "partition": "drawn", "samples_per_client": 9})
    whole = settings.build_problem()
    alone = problem_of_client(settings, 654_321)
    assert torch.equal(alone.client_samples(0).inputs, whole.client_samples(654_321).inputs)
