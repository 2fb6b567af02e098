"""The parts on docs/extend.md, from files outside the package, do what the page says."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from fedcef.algorithms import ALGORITHMS, FedAvg, FedCEF
from fedcef.compressors import RandK, TopK
from fedcef.core.errors import ConfigError
from fedcef.problems.lasso import lasso
from fedcef.python.run import run
from fedcef.regularizers import L1
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run as run_settings

from . import test_contract as contract
from .setting import Quadratics, deploy, settle, simulate

PAGE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text("utf-8")
FILES = re.findall(r"`(my_\w+)\.py`.*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CONTRACT = {name: test for name, test in vars(contract).items() if name.startswith("test_")}
PROBLEM = Quadratics.random()


@pytest.fixture(scope="module", autouse=True)
def outside(tmp_path_factory):
    """The page's files, in a folder from which they can be imported."""
    folder = tmp_path_factory.mktemp("outside")
    for name, text in FILES:
        (folder / f"{name}.py").write_text(text, "utf-8")
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    for name, _ in FILES:
        sys.modules.pop(name, None)


@pytest.fixture
def momentum():
    return import_module("my_optimizers").Momentum


@pytest.fixture
def diana():
    return import_module("my_methods").DIANA


def test_an_example_has_at_most_forty_lines():
    assert [name for name, _ in FILES][:2] == ["my_optimizers", "my_methods"]
    assert all(len(text.splitlines()) <= 40 for _, text in FILES)


# A local optimiser


def test_momentum_in_fedavg_by_hand(momentum):
    found = simulate(FedAvg(local_lr=0.02, local_steps=4, local_update=momentum(0.5)), PROBLEM, 10).points
    z = PROBLEM.z0
    for point in found:
        x, m = z.expand_as(PROBLEM.b), torch.zeros_like(PROBLEM.b)
        for k in range(4):
            m = 0.5 * m + PROBLEM.oracle(x, k)
            x = x - 0.02 * m
        z = x.mean(0)
        torch.testing.assert_close(point, z, rtol=0, atol=1e-12)


def test_momentum_in_fedcef_by_hand(momentum):
    common = {"local_lr": 0.02, "local_steps": 4, "regularizer": L1(0.1)}
    found = simulate(FedCEF(**common, local_update=momentum(0.5)), PROBLEM, 10).points
    h, z, c, c_i = L1(0.1), PROBLEM.z0, torch.zeros_like(PROBLEM.z0), torch.zeros_like(PROBLEM.b)
    for point in found:
        x_hat = x = z.expand_as(c_i)
        m, gradients = torch.zeros_like(c_i), []
        for k in range(4):
            gradients.append(PROBLEM.oracle(x, k))
            m = 0.5 * m + gradients[-1] + c - c_i
            x_hat = x_hat - 0.02 * m
            x = h.prox(x_hat, (k + 1) * 0.02)
        c_i = torch.stack(gradients).mean(0)
        c = c_i.mean(0)
        z = h.prox(z - 0.08 * c, 0.08)
        torch.testing.assert_close(point, z, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if kind.steps_locally])
def test_every_method_with_local_steps_takes_it_on_either_engine(name, momentum):
    kind = ALGORITHMS[name]
    compressor = {"compressor": TopK(ratio=0.2)} if kind.compresses else {}
    options = {"local_lr": 0.01, "local_steps": 3, "regularizer": L1(0.05), **compressor}
    with_it, without = kind(**options, local_update=momentum(0.5)), kind(**options)
    _, _, server = deploy(with_it, PROBLEM, 4)
    stacked = simulate(with_it, PROBLEM, 4)
    for part, vector in stacked.replica.items():
        torch.testing.assert_close(server[part], vector, rtol=0, atol=1e-12)
    assert not torch.allclose(stacked.points[-1], simulate(without, PROBLEM, 4).points[-1], rtol=0, atol=1e-6)


def test_its_options_are_checked(momentum):
    with pytest.raises(ConfigError, match=r"momentum is 1\.0; it must be less than 1\."):
        momentum(1.0)


def test_it_trains_from_python(momentum):
    problem = lasso(L1(0.01), num_clients=4, samples=20, dim=10, support=3)
    history = run(problem, FedAvg(local_lr=0.01, local_steps=3, local_update=momentum()), rounds=20, batch_size=0)
    assert history["objective"][-1] < 0.2 * history["objective"][0]


# A method


@pytest.mark.parametrize("test", CONTRACT.values(), ids=CONTRACT)
def test_it_keeps_the_contract(test, diana, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "diana", diana)
    test("diana")


def test_diana_reaches_the_solution_with_an_unbiased_compressor_that_forgets():
    kind = import_module("my_methods").DIANA
    options = {"local_lr": 0.05, "local_steps": 1, "regularizer": L1(0.1)}
    unbiased = RandK(ratio=0.5, unbiased=True)
    for size in (None, 3):
        assert settle(kind(**options, compressor=unbiased), PROBLEM, 1500, 1e-8, size)[1] <= 1e-8


def test_the_server_knows_the_mean_of_its_shifts(diana):
    outcome = simulate(diana(local_lr=0.02, compressor=TopK(ratio=0.2)), PROBLEM, 30, size=2)
    torch.testing.assert_close(outcome.server["s"], outcome.clients["s_i"].mean(0), rtol=0, atol=1e-12)


# Both by their import paths, in settings


@pytest.mark.parametrize(
    "changes",
    [
        ["algorithm.name=my_methods:DIANA", "compressor.name=topk"],
        ["algorithm.name=fedavg", "local_update.name=my_optimizers:Momentum", "local_update.momentum=0.5"],
    ],
    ids=["a method", "a local optimiser"],
)
def test_they_train_by_their_import_paths(changes, tmp_path):
    settings = load_settings("lasso", ["rounds=2", "compressor.name=identity", "eval.optimum=false", *changes])
    summary = run_settings(settings, RunFolder.new(tmp_path / "run"))
    assert summary["rounds"] == 2
    recorded = load_settings(str(tmp_path / "run" / "config.toml"))
    algorithm = recorded.build_algorithm(recorded.build_problem())
    assert {type(algorithm).__name__, type(algorithm.local_update).__name__} & {"DIANA", "Momentum"}
    assert getattr(algorithm.local_update, "momentum", 0.5) == 0.5


def test_a_method_without_local_steps_refuses_a_section():
    changes = ["algorithm.name=ef21", "compressor.name=topk", "local_update.name=my_optimizers:Momentum"]
    settings = load_settings("lasso", changes)
    with pytest.raises(ConfigError, match="EF21 has no local gradient steps and no place for a local update"):
        settings.build_algorithm(settings.build_problem())
