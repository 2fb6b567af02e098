"""Problems by import path: whose data is asked for, what is said when something does not fit, the guide's example."""

import re
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fedcef.cli.main import app
from fedcef.core.errors import ConfigError
from fedcef.deployment import ClientStore, Coordinator, Worker
from fedcef.deployment.client_problem import problem_of_client
from fedcef.deployment.measures import measures_of
from fedcef.runs.experiments import load_settings
from fedcef.runs.reader import RunReader
from fedcef.runs.settings import Settings

GUIDE = (Path(__file__).parents[2] / "docs" / "bring_your_own.md").read_text("utf-8")
MODULE = next(b for b in re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S) if "def build_problem" in b)
SETTINGS = next(b for b in re.findall(r"^```toml\n(.*?)^```$", GUIDE, re.M | re.S) if "build_problem" in b)

TIED = """
import torch
from torch import nn
from fedcef import Problem

def build_problem(num_clients, seed, clients):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    data = [(torch.eye(4), torch.arange(4)) for _ in range(num_clients)]
    wanted = range(num_clients) if clients is None else clients
    return Problem.build(model, nn.CrossEntropyLoss(), [data[i] for i in wanted], test=data[0])
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def guide(here):
    (here / "hospital.py").write_text(MODULE)
    (here / "hospital.toml").write_text(SETTINGS)
    return load_settings("hospital.toml")


def test_the_guide_s_problem_runs(guide, here):
    result = CliRunner().invoke(app, ["run", "hospital.toml", "--set", "rounds=40", "--out", "out"])
    assert result.exit_code == 0, result.output
    again = load_settings("out/config.toml")
    assert again.data == {"name": "hospital:build_problem", "hidden": 16}
    assert again.build_problem().dim == 30 * 16 + 16 + 16 * 2 + 2


def test_a_client_gets_its_own_samples_only(guide):
    whole = guide.build_problem()
    for client in range(5):
        shard, expected = problem_of_client(guide, client), whole.client_samples(client)
        assert shard.num_clients == 1
        assert torch.equal(shard.train.inputs, expected.inputs)
        assert torch.equal(shard.z0, whole.z0)


def test_a_server_has_no_samples_and_measures_what_it_can(guide):
    problem = guide.build_problem(())
    assert (problem.num_clients, len(problem.train)) == (0, 0)
    found = measures_of(guide, problem)(problem.z0, None)
    assert found.keys() == {"accuracy", "test_loss", "density", "density_1e-4"}
    whole = measures_of(guide, guide.build_problem())(problem.z0, None)
    assert found["accuracy"] == whole["accuracy"]
    assert "objective" in whole


def test_a_server_measures_what_was_asked_for(guide):
    settings = Settings(**{**guide.model_dump(exclude_none=True), "eval": {"metrics": ["balanced_accuracy"]}})
    problem = settings.build_problem(())
    found = measures_of(settings, problem)(problem.z0, None)
    whole = measures_of(settings, settings.build_problem())(problem.z0, None)
    assert found["balanced_accuracy"] == whole["balanced_accuracy"] > 0


def test_a_server_writes_tied_weights_under_each_of_their_names(here):
    (here / "tied.py").write_text(TIED)
    settings = Settings(num_clients=1, rounds=1, data={"name": "tied:build_problem"})
    server = Coordinator.new(settings, settings.build_problem(()), here / "server")
    worker = Worker(settings, problem_of_client(settings, 0), ClientStore(here / "client", 0))
    server.enroll("a", 0)
    assert server.receive("a", worker.handle(server.start_round(0.0)[0])).accepted
    server.close_round(0.0)
    server.finish()
    model = settings.build_problem().model
    model.load_state_dict(RunReader(here / "server").model())
    assert torch.equal(model[0].weight, server.state.model().view(4, 4))


def test_a_problem_without_clients_cannot_be_simulated(guide, here):
    (here / "empty.py").write_text(MODULE.replace("for i in wanted]", "for i in ()]"))
    with pytest.raises(ConfigError, match="returned a problem with 0 clients for clients=None; it must be 5"):
        Settings(num_clients=5, data={"name": "empty:build_problem"}).build_problem()


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("nothing:f", {}, "there is no module nothing; start where it lies"),
        ("nothing.at.all:f", {}, "there is no module nothing.at.all"),
        ("needy:f", {}, "needy needs not_there, which is missing"),
        ("mine:g", {}, "mine has no function or class g"),
        ("mine:", {}, "mine has no function"),
        (":f", {}, "it must be like package.module:name"),
        ("mine:f", {}, "mine:f returned int; it must return a fedcef.Problem"),
        ("mine:f", {"size": 3}, "mine:f cannot be called with num_clients, seed, clients, size: .*'size'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(here, name, options, sentence):
    (here / "mine.py").write_text("def f(num_clients, seed, clients):\n    return 7\n")
    (here / "needy.py").write_text("import not_there\n")
    with pytest.raises(ConfigError, match=sentence):
        Settings(data={"name": name, **options}).build_problem()


def test_the_model_section_stays_away(guide):
    with pytest.raises(ConfigError, match="builds its own model"):
        guide.model_copy(update={"model": {"name": "mlp"}}).build_problem()


def test_a_misspelt_data_set_is_still_told(here):
    with pytest.raises(ConfigError, match="Did you mean digits"):
        Settings(data={"name": "digit"}).build_problem()
