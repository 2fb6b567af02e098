"""The method that docs/contributing.md walks through does what the page says, and passes the contract."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from algorithms import test_contract as contract
from algorithms.golden import by_hand
from algorithms.setting import Quadratics, settle, simulate
from fedcef.algorithms import ALGORITHMS, FedAvg
from fedcef.core.errors import ConfigError
from fedcef.regularizers import L1
from fedcef.runs.settings import Settings
from fedcef.simulation.simulation import Simulation

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text("utf-8")
METHOD, GOLDEN = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LINE = re.search(r'^    "(\w+)": (\w+),$', PAGE, re.MULTILINE)
CONTRACT = {name: test for name, test in vars(contract).items() if name.startswith("test_")}

PROBLEM = Quadratics.random()
K = 5
COMMON = {"local_lr": 0.2 / (K * PROBLEM.smoothness), "local_steps": K}


@pytest.fixture(scope="module")
def kind(tmp_path_factory):
    """The class on the page, from a file of its own."""
    name, class_name = LINE.groups()
    path = tmp_path_factory.mktemp("algorithms") / f"{name}.py"
    path.write_text(METHOD, "utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield getattr(module, class_name)
    del sys.modules[name]


@pytest.fixture
def registered(kind, monkeypatch):
    """Its name, with the page's line in the registry."""
    name, _ = LINE.groups()
    assert name not in ALGORITHMS, f"{name} is part of the package now; the page needs another example"
    monkeypatch.setitem(ALGORITHMS, name, kind)
    return name


@pytest.mark.parametrize("test", CONTRACT.values(), ids=CONTRACT)
def test_it_keeps_the_contract(test, registered):
    test(registered)


def test_the_page_names_the_contract_s_tests():
    assert re.findall(r"^\| `(test_\w+)` \|", PAGE, re.MULTILINE) == list(CONTRACT)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_its_rounds_are_those_by_hand(kind, rounds):
    names = {**vars(by_hand), kind.__name__: kind, "np": np}
    exec(GOLDEN, names)
    ((algorithm, rounds_by_hand),) = names["CASES"].values()
    assert type(algorithm) is kind
    point = simulate(algorithm, by_hand.CLIENTS, rounds).points[-1]
    np.testing.assert_allclose(point.numpy(), rounds_by_hand(rounds), rtol=0, atol=1e-14)


def test_without_momentum_it_is_fedavg(kind):
    options = {**COMMON, "server_lr": 1.5, "regularizer": L1(0.1)}
    ours, fedavg = (simulate(a, PROBLEM, 40).points for a in (kind(**options, mixing=1.0), FedAvg(**options)))
    for a, b in zip(ours, fedavg, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mixing", [0.1, 0.5])
def test_it_ends_where_fedavg_with_shorter_local_steps_does(kind, mixing):
    shorter = {**COMMON, "local_lr": mixing * COMMON["local_lr"], "server_lr": 1 / mixing}
    ours, fedavg = (simulate(a, PROBLEM, 600).points[-1] for a in (kind(**COMMON, mixing=mixing), FedAvg(**shorter)))
    torch.testing.assert_close(ours, fedavg, rtol=0, atol=1e-9)
    assert PROBLEM.gradient(ours).norm() > 1e-3


def test_one_local_step_is_exact_with_a_regulariser(kind):
    method = kind(local_lr=COMMON["local_lr"] * K, local_steps=1, mixing=0.3, regularizer=L1(0.1))
    assert settle(method, PROBLEM, 3000, 1e-10)[1] <= 1e-10


def test_with_a_shorter_prox_it_would_not_be(kind):
    class ShortProx(kind):
        def server_prox(self, z):
            return self.regularizer.prox(z, self.step / 2)

    ours = simulate(ShortProx(**COMMON, regularizer=L1(0.1)), PROBLEM, 1500).points[-1]
    half = simulate(kind(**COMMON, regularizer=L1(0.05)), PROBLEM, 1500).points[-1]
    torch.testing.assert_close(ours, half, rtol=0, atol=1e-9)


def test_a_cohort_is_enough_to_take_a_step(kind):
    outcome = simulate(kind(**COMMON, mixing=0.5), PROBLEM, 20, size=2)
    assert PROBLEM.gradient(outcome.points[-1]).norm() < PROBLEM.gradient(PROBLEM.z0).norm()


def test_settings_know_it(registered, kind):
    data = {"name": "lasso", "dim": 20, "samples": 10, "support": 5}
    config = Settings(num_clients=3, local_lr=0.01, data=data, algorithm={"name": registered, "mixing": 0.5})
    problem = config.build_problem()
    algorithm = config.build_algorithm(problem)
    assert type(algorithm) is kind
    assert algorithm.step == pytest.approx(config.local_lr * config.local_steps)
    assert "mixing = 0.5" in config.to_toml()
    simulation = Simulation(problem, algorithm)
    simulation.step()
    simulation.check_finite()
    wrong = config.model_copy(update={"algorithm": {"name": registered, "mixing": 0.0}})
    with pytest.raises(ConfigError, match=r"algorithm\.mixing is 0\.0; it must be greater than 0"):
        wrong.build_algorithm(problem)


def test_files_and_pages_that_the_page_names_exist():
    name, _ = LINE.groups()
    named = set(re.findall(r"`((?:src|tests)/[\w./]+)`", PAGE)) - {f"src/fedcef/algorithms/{name}.py"}
    linked = {f"docs/{page}" for page in re.findall(r"\]\((\w+\.md)", PAGE)}
    assert [path for path in sorted(named | linked) if not (ROOT / path).exists()] == []
