"""The seams for local and server updates: who has a place for one, what it is told, and what becomes of its state."""

from dataclasses import dataclass, field

import pytest
import torch

from fedcef.algorithms import ALGORITHMS, EF21, SCAFFOLD, FastFedDA, FedAvg, FedCEF, FedDA, FedMiD, FedProx
from fedcef.algorithms.local_steps import corrected_steps, gradient_steps
from fedcef.compressors import TopK
from fedcef.core.errors import ConfigError
from fedcef.optimizers import SGD, LocalUpdate, Plain, ServerUpdate
from fedcef.regularizers import L1, Zero

from .setting import Quadratics, simulate

PROBLEM = Quadratics.random()


@dataclass(frozen=True, eq=False)
class AlsoSGD(LocalUpdate):
    """The same direction as SGD, by the way that other updates go."""

    calls: list = field(default_factory=list)

    def init(self, x):
        return {"steps": torch.zeros(())}

    def update(self, gradient, state, x, step):
        self.calls.append((step, float(state["steps"]), x.clone(), gradient.clone()))
        return gradient, {"steps": state["steps"] + 1}


@dataclass(frozen=True, eq=False)
class Twice(ServerUpdate):
    def update(self, mean, state):
        return 2 * mean, state


@dataclass(frozen=True, eq=False)
class Heavy(ServerUpdate):
    """Momentum."""

    def init(self, z):
        return {"m": torch.zeros_like(z)}

    def update(self, mean, state):
        m = 0.5 * state["m"] + mean
        return m, {"m": m}


def build(kind, **options):
    compressor = {"compressor": TopK(ratio=0.2)} if kind.compresses else {}
    return kind(local_lr=0.02, local_steps=4, **compressor, **options)


STEPPING = [name for name, kind in ALGORITHMS.items() if kind.steps_locally]
AVERAGING = [name for name, kind in ALGORITHMS.items() if kind.steps_by_mean]


def test_who_has_a_place_for_one():
    without = {"ef14", "ef21", "ef21_sgdm", "ef21_prox", "ef21_bc", "econtrol", "fast_fedda", "c_fedda"}
    without |= {"ef21_pp", "dasha_pp", "fetchsgd", "demo"}
    assert set(ALGORITHMS) - set(STEPPING) == without
    assert set(AVERAGING) == {
        *("fedavg", "fedda", "qsparse", "fedpaq", "fed_ef", "fedmid", "fedprox", "fedbuff", "scaffold"),
        "sparseloco",
    }


@pytest.mark.parametrize("name", STEPPING)
def test_other_updates_take_the_same_steps(name):
    kind, h = ALGORITHMS[name], L1(0.05)
    plain = simulate(build(kind, regularizer=h, local_update=SGD()), PROBLEM, 6)
    other = simulate(build(kind, regularizer=h, local_update=AlsoSGD()), PROBLEM, 6)
    for part, vector in plain.replica.items():
        torch.testing.assert_close(other.replica[part], vector, rtol=0, atol=1e-12)
    for part, table in plain.clients.items():
        torch.testing.assert_close(other.clients[part], table, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("steps", "added"),
    [
        (lambda method, oracle: gradient_steps(method, PROBLEM.z0, oracle), 0.0),
        (lambda method, oracle: corrected_steps(method, PROBLEM.z0, torch.ones(20).double(), oracle, L1(0.1)), 1.0),
    ],
    ids=["gradient", "corrected"],
)
def test_what_an_update_is_told(steps, added):
    """The step's number, its own state, the point at which the gradient was taken, and all of the gradient."""
    update, asked = AlsoSGD(), []

    def oracle(x, k):
        asked.append(x.clone())
        return PROBLEM.oracle(x, k)

    method = FedAvg(local_lr=0.02, local_steps=3, local_update=update)
    walk = steps(method, oracle)
    assert [(step, before) for step, before, _, _ in update.calls] == [(0, 0), (1, 1), (2, 2)]
    for (_, _, x, gradient), point in zip(update.calls, asked, strict=True):
        assert torch.equal(x, point)
        assert torch.equal(gradient, PROBLEM.oracle(point, 0) + added)
    assert float(walk.state["steps"]) == 3
    update.calls.clear()
    again = gradient_steps(method, PROBLEM.z0, oracle, state=walk.state)
    assert [before for _, before, _, _ in update.calls] == [3, 4, 5]
    assert float(again.state["steps"]) == 6


@pytest.mark.parametrize("kind", [EF21, FastFedDA])
def test_who_takes_no_local_steps_refuses_a_local_update(kind):
    with pytest.raises(ConfigError, match=f"{kind.__name__} has no local gradient steps and no place for a local upd"):
        kind(local_update=AlsoSGD())
    assert isinstance(kind(local_update=SGD()).local_update, SGD)


@pytest.mark.parametrize("name", AVERAGING)
def test_a_server_update_makes_the_step(name):
    kind = ALGORITHMS[name]
    twice = simulate(build(kind, regularizer=Zero(), server_update=Twice()), PROBLEM, 8)
    longer = simulate(build(kind, regularizer=Zero(), server_lr=2.0), PROBLEM, 8)
    for a, b in zip(twice.points, longer.points, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert twice.server == {}


@pytest.mark.parametrize("kind", [FedAvg, FedProx, FedMiD, FedDA, SCAFFOLD])
def test_its_state_is_the_servers(kind):
    """m is the sum of the moves so far, each halved for every round since."""
    outcome = simulate(build(kind, server_update=Heavy()), PROBLEM, 8)
    assert set(outcome.server) == {"m"}
    moved = outcome.points[-1] - outcome.points[-2]  # η_g = 1, h = 0
    torch.testing.assert_close(outcome.server["m"], moved, rtol=0, atol=1e-12)
    assert simulate(build(kind, server_update=Plain()), PROBLEM, 2).server == {}


def test_whose_server_takes_no_mean_step_refuses_a_server_update():
    with pytest.raises(ConfigError, match="The server of FedCEF does not step by a mean change; leave the server upd"):
        FedCEF(server_update=Twice())
