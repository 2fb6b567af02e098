"""Server updates: what they are called in the literature, what they are to FedAvg, and where they end."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedcef.algorithms import ALGORITHMS, SCAFFOLD, FedAdagrad, FedAdam, FedAvg, FedAvgM, FedPAQ, FedProx, FedYogi
from fedcef.compressors import TopK
from fedcef.core.errors import ConfigError
from fedcef.optimizers import SERVER_UPDATES, Adagrad, Adam, Momentum, Yogi
from fedcef.regularizers import L1

from .golden.by_hand import CLIENTS
from .golden.server_methods import CASES
from .setting import Quadratics, participants, settle, simulate

PROBLEM = Quadratics.random()
COMMON = {"local_lr": 0.02, "local_steps": 4}
NAMED = {
    "fedavgm": (FedAvgM(**COMMON), Momentum()),
    "fedavgm nesterov": (FedAvgM(**COMMON, momentum=0.5, nesterov=True), Momentum(momentum=0.5, nesterov=True)),
    "fedadam": (FedAdam(**COMMON, server_lr=0.01), Adam()),
    "fedyogi": (FedYogi(**COMMON, server_lr=0.01, momentum=0.5, decay=0.9), Yogi(momentum=0.5, decay=0.9)),
    "fedadagrad": (FedAdagrad(**COMMON, server_lr=0.01, floor=0.1), Adagrad(floor=0.1)),
}


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("case", CASES)
def test_rounds_with_some_of_the_clients_are_those_done_by_hand(case, rounds):
    """One of the two clients in each round; both have their turn in five rounds."""
    algorithm, by_hand = CASES[case]
    cohorts = [tuple(participants(2, 1, t)[0].tolist()) for t in range(5)]
    assert set(cohorts) == {(0,), (1,)}
    points = simulate(algorithm, CLIENTS, rounds, size=1).points
    np.testing.assert_allclose(points[-1].numpy(), by_hand(rounds, cohorts=cohorts), rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("name", NAMED)
def test_a_named_method_is_fedavg_with_its_update(name, size):
    method, update = NAMED[name]
    method = replace(method, regularizer=L1(0.05))
    fedavg = FedAvg(
        **COMMON,
        server_lr=method.server_lr,
        regularizer=L1(0.05),
        server_update=update,
        composite=method.composite,
    )
    named, plain = simulate(method, PROBLEM, 6, size), simulate(fedavg, PROBLEM, 6, size)
    assert all(torch.equal(a, b) for a, b in zip(named.points, plain.points, strict=True))
    assert named.server.keys() == plain.server.keys()
    assert all(torch.equal(named.server[k], plain.server[k]) for k in named.server)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("size", [None, 3])
def test_without_momentum_fedavgm_is_fedavg(size, nesterov):
    options = {**COMMON, "server_lr": 1.5, "regularizer": L1(0.05)}
    plain = simulate(FedAvg(**options), PROBLEM, 8, size)
    other = simulate(FedAvgM(**options, momentum=0.0, nesterov=nesterov), PROBLEM, 8, size)
    assert all(torch.equal(a, b) for a, b in zip(plain.points, other.points, strict=True))


@pytest.mark.parametrize("kind", [FedAdam, FedYogi])
def test_a_memory_that_never_moves_leaves_fedavg(kind):
    """b_1 = 0 and b_2 = 1: v stays τ², and every step is the mean change by 2τ."""
    options = {**COMMON, "regularizer": L1(0.05), "composite": "subgradient"}
    plain = simulate(FedAvg(**options), PROBLEM, 8)
    still = simulate(kind(**options, momentum=0.0, decay=1.0, floor=0.25, server_lr=0.5), PROBLEM, 8)
    for a, b in zip(plain.points, still.points, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def test_adaptive_servers_take_the_first_step_alike():
    """Yogi's memory starts below the squared change, so that it grows by as much as Adam's, but for b_2·τ²."""
    change, state = torch.tensor([3.0, -4.0, 0.0]).double(), Adam().init(torch.zeros(3).double())
    adam, yogi, adagrad = (kind(momentum=0.0).update(change, state) for kind in (Adam, Yogi, Adagrad))
    torch.testing.assert_close(yogi[1]["v"], adam[1]["v"] + 0.01 * 1e-6, rtol=0, atol=1e-15)
    torch.testing.assert_close(adagrad[0], change / ((change**2 + 1e-6).sqrt() + 1e-3), rtol=0, atol=1e-15)
    assert adam[0][2] == yogi[0][2] == adagrad[0][2] == 0


METHODS = {
    "fedprox": FedProx(**COMMON, proximal_weight=0.5),
    "scaffold": SCAFFOLD(**COMMON),
    "fedpaq": FedPAQ(**COMMON, compressor=TopK(ratio=0.2)),
}


@pytest.mark.parametrize("update", ["momentum", "adam", "yogi", "adagrad"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_steps_by_a_mean_takes_them(name, update):
    outcome = simulate(replace(METHODS[name], server_update=SERVER_UPDATES[update](), server_lr=0.05), PROBLEM, 4, 3)
    assert set(outcome.server) == ({"m"} if update == "momentum" else {"m", "v"})
    assert outcome.points[-1].isfinite().all()


def optimum(problem):
    return torch.linalg.solve(problem.a.mean(0), problem.b.mean(0))


@pytest.mark.parametrize(
    "method",
    [
        FedAvgM(local_lr=0.05, local_steps=1),
        FedAvgM(local_lr=0.05, local_steps=1, nesterov=True),
        FedAdam(local_lr=0.05, local_steps=1, server_lr=0.01, floor=0.01),
        FedYogi(local_lr=0.05, local_steps=1, server_lr=0.01, floor=0.01),
        FedAdagrad(local_lr=0.05, local_steps=1, server_lr=0.3),
    ],
    ids=["momentum", "nesterov", "adam", "yogi", "adagrad"],
)
def test_one_local_step_solves_a_smooth_problem(method):
    z, distance = settle(method, PROBLEM, 4000, 1e-10)
    assert distance <= 1e-10
    torch.testing.assert_close(z, optimum(PROBLEM), rtol=0, atol=1e-8)


@pytest.mark.parametrize("update", [Momentum(), Momentum(nesterov=True)], ids=["plain", "nesterov"])
@pytest.mark.parametrize("kind", [SCAFFOLD], ids=["scaffold"])
def test_a_corrected_method_stays_exact_with_momentum(kind, update):
    method = kind(local_lr=0.01, local_steps=5, server_update=update)
    assert settle(method, PROBLEM, 3000, 1e-9)[1] <= 1e-9


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_weighs_the_regulariser_as_it_weighs_gradients(nesterov):
    """One local step: exact with h.  With the prox of plain averaging it would solve the problem for h/10."""
    method = FedAvgM(local_lr=0.05, local_steps=1, nesterov=nesterov, regularizer=L1(0.2))
    z, distance = settle(method, PROBLEM, 4000, 1e-10)
    assert distance <= 1e-10
    assert (z == 0).any()

    class Shorter(Momentum):
        gain = 1.0

    shorter = FedAvg(
        local_lr=0.05, local_steps=1, regularizer=L1(0.2), server_update=Shorter(momentum=0.9, nesterov=nesterov)
    )
    other = simulate(shorter, PROBLEM, 1000).points[-1]
    assert PROBLEM.stationarity(other, replace(method, regularizer=L1(0.02))) <= 1e-9


def test_with_a_prox_of_one_length_an_adaptive_server_hardly_sees_the_regulariser():
    """At Adam's limit √v is the size of d: where z is not 0, η_g·d/(d + τ) = βλ, so |∇f| = τλ/(1 - αKλ)."""
    method = FedAdam(
        local_lr=0.05, local_steps=1, server_lr=0.005, floor=0.01, regularizer=L1(0.2), composite="server_prox"
    )
    z = simulate(method, PROBLEM, 4000).points[-1]
    g = PROBLEM.gradient(z)[z != 0].abs()
    torch.testing.assert_close(g, torch.full_like(g, 0.01 * 0.2 / (1 - 0.05 * 0.2)), rtol=0, atol=1e-8)


def test_local_steps_leave_fedavgs_limit():
    """Several local steps: beside the optimum, where FedAvg ends too."""
    end = simulate(FedAvg(local_lr=0.05, local_steps=5), PROBLEM, 600).points[-1]
    for method in (
        FedAvgM(local_lr=0.05, local_steps=5),
        FedAdagrad(local_lr=0.05, local_steps=5, server_lr=0.5),
    ):
        torch.testing.assert_close(simulate(method, PROBLEM, 600).points[-1], end, rtol=0, atol=1e-8)
    assert float((end - optimum(PROBLEM)).norm()) > 1e-3


def test_a_named_method_refuses_another_update():
    with pytest.raises(ConfigError, match="FedAdam has a server update of its own; leave the other out, or take FedA"):
        FedAdam(server_update=Yogi())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Momentum(momentum=1.0), "momentum is 1.0; it must be less than 1"),
        (lambda: Adam(floor=0.0), "floor is 0.0; it must be greater than 0"),
        (lambda: Yogi(decay=1.5), "decay is 1.5; it must be less than or equal to 1"),
        (lambda: FedAvgM(momentum=-0.1), "momentum is -0.1; it must be greater than or equal to 0"),
        (lambda: FedAdagrad(floor=-1.0), "floor is -1.0; it must be greater than 0"),
    ],
)
def test_options_out_of_range_are_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_who_is_registered():
    assert list(SERVER_UPDATES) == ["plain", "momentum", "adam", "yogi", "adagrad"]
    assert all(not ALGORITHMS[name].steps_by_mean for name in ("fedavgm", "fedadam", "fedyogi", "fedadagrad"))
