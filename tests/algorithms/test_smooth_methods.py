"""FedProx, SCAFFOLD, FedDyn, FedPD and FedDC: exact relations, and where they end, in float64 with exact gradients."""

from dataclasses import replace

import pytest
import torch

from fedcef.algorithms import SCAFFOLD, FedADMM, FedAvg, FedCanon, FedCEF, FedDC, FedDyn, FedPD, FedProx
from fedcef.core.errors import ConfigError
from fedcef.core.rng import round_key
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1, Zero
from fedcef.simulation.simulation import Simulation

from .setting import Quadratics, settle, simulate

PROBLEM = Quadratics.random()
K, LAM = 5, 0.1
ALPHA = 1 / (K * PROBLEM.smoothness)
COMMON = {"local_lr": ALPHA, "local_steps": K}
ROUNDS = 500

steps = pytest.mark.parametrize("local_steps", [1, 2, 5, 10])


def same_points(a, b, rounds=40, tolerance=1e-12):
    pairs = zip(simulate(a, PROBLEM, rounds).points, simulate(b, PROBLEM, rounds).points, strict=True)
    return max(float((x - y).abs().max()) for x, y in pairs) <= tolerance


@steps
@pytest.mark.parametrize("composite", ["server_prox", "subgradient"])
def test_fedprox_without_its_term_is_fedavg(local_steps, composite):
    common = {"local_lr": 0.02, "server_lr": 1.5, "local_steps": local_steps, "composite": composite}
    assert same_points(FedProx(**common, proximal_weight=0, regularizer=L1(LAM)), FedAvg(**common, regularizer=L1(LAM)))


@steps
def test_scaffolds_control_is_the_papers_formula(local_steps):
    """Option II: c_i ← c_i - c + (z - x)/(Kα), from a state in the middle of a run."""
    algorithm = SCAFFOLD(local_lr=0.02, local_steps=local_steps, server_lr=1.5)
    before = simulate(algorithm, PROBLEM, 7)
    z, c, c_i = before.replica["z"], before.replica["c"], before.clients["c_i"]
    key = round_key(0, 7, torch.arange(PROBLEM.num_clients))
    up, after = algorithm.local(before.replica, before.clients, PROBLEM.oracle, key)

    x = z.expand_as(c_i)
    for k in range(local_steps):
        x = x - 0.02 * (PROBLEM.oracle(x, k) - c_i + c)
    control = c_i - c + (z - x) / (local_steps * 0.02)
    torch.testing.assert_close(up["change"].dense(), x - z, rtol=0, atol=1e-12)
    torch.testing.assert_close(up["moved"].dense(), control - c_i, rtol=0, atol=1e-12)
    torch.testing.assert_close(after["c_i"], control, rtol=0, atol=1e-12)

    end = simulate(algorithm, PROBLEM, 8).replica
    torch.testing.assert_close(end["z"], z + 1.5 * (x - z).mean(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(end["c"], c + (control - c_i).mean(0), rtol=0, atol=1e-12)


@steps
def test_scaffold_is_uncompressed_fedcef_without_a_regulariser(local_steps):
    common = {"local_lr": 0.02, "server_lr": 1.5, "local_steps": local_steps, "regularizer": Zero()}
    assert same_points(SCAFFOLD(**common), FedCEF(**common, mixing=1.0))


@steps
def test_scaffold_with_a_server_prox_is_fedcanon_as_reconstructed(local_steps):
    common = {"local_lr": 0.02, "server_lr": 1.5, "local_steps": local_steps, "regularizer": L1(LAM)}
    assert same_points(SCAFFOLD(**common), FedCanon(**common))


@steps
@pytest.mark.parametrize("regularizer", [Zero(), L1(LAM)])
@pytest.mark.parametrize("server_lr", [1.0, 1.5])
def test_fedpd_from_the_servers_point_is_feddyn(local_steps, regularizer, server_lr):
    """μ = 1/η and l_i = -g_i, both zero at the start."""
    common = {"local_lr": 0.05, "local_steps": local_steps, "server_lr": server_lr, "regularizer": regularizer}
    fedpd, feddyn = FedPD(**common, penalty_step=0.4, start="server"), FedDyn(**common, penalty=2.5)
    assert same_points(fedpd, feddyn)
    duals, gradients = (simulate(a, PROBLEM, 40).clients for a in (fedpd, feddyn))
    torch.testing.assert_close(duals["l_i"], -gradients["g_i"], rtol=0, atol=1e-12)


@steps
@pytest.mark.parametrize("start", ["own", "server"])
def test_fedpd_with_a_server_prox_is_fedadmm_with_all_clients(local_steps, start):
    common = {"local_lr": 0.05, "local_steps": local_steps, "regularizer": L1(LAM), "penalty_step": 0.4}
    assert same_points(FedPD(**common, start=start), FedADMM(**common, start=start))


PENALIZED = {
    "feddyn": FedDyn(**COMMON, penalty=1.0),
    "feddyn, server_lr": FedDyn(**COMMON, penalty=1.0, server_lr=1.5),
    "fedpd": FedPD(**COMMON, penalty_step=1.0),
    "fedpd from z": FedPD(**COMMON, penalty_step=1.0, start="server"),
    "feddc": FedDC(**COMMON, penalty=1.0),
    "feddc, server_lr": FedDC(**COMMON, penalty=1.0, server_lr=1.5),
}


def with_l1(algorithm, **options):
    return replace(algorithm, regularizer=L1(LAM), **options)


@pytest.mark.parametrize(
    "algorithm",
    [SCAFFOLD(**COMMON), SCAFFOLD(**COMMON, option="I"), *PENALIZED.values()],
    ids=lambda a: type(a).__name__,
)
def test_corrected_methods_reach_the_optimum_of_a_smooth_problem(algorithm):
    assert settle(algorithm, PROBLEM, ROUNDS, 1e-10)[1] <= 1e-10


@pytest.mark.parametrize("method", [FedAvg, FedProx])
def test_uncorrected_methods_stop_short_by_an_amount_that_halves_with_the_step(method):
    def bias(share, rounds):
        algorithm = method(local_lr=share * ALPHA, local_steps=K)
        return float(PROBLEM.gradient(simulate(algorithm, PROBLEM, rounds).points[-1]).norm())

    at_full, at_half = bias(0.4, 300), bias(0.2, 600)
    assert at_full > 1e-3
    assert at_half == pytest.approx(at_full / 2, rel=0.05)


@pytest.mark.parametrize("case", PENALIZED)
def test_penalized_methods_with_a_server_prox_reach_the_composite_optimum(case):
    algorithm = with_l1(PENALIZED[case])
    z, distance = settle(algorithm, PROBLEM, ROUNDS, 1e-10)
    assert distance <= 1e-10
    assert 0 < int((z == 0).sum()) < len(z)


class ShortProx(FedDyn):
    @property
    def step(self):
        return self.local_lr * self.server_lr * self.local_steps


def test_feddyn_with_a_prox_of_length_beta_solves_another_problem():
    """Negative control: it is the one in which h has the weight βμ/η_g."""
    algorithm = ShortProx(**COMMON, penalty=1.0, server_lr=1.5, regularizer=L1(LAM))
    z = simulate(algorithm, PROBLEM, ROUNDS).points[-1]
    weight = LAM * algorithm.step * algorithm.penalty / algorithm.server_lr
    assert PROBLEM.stationarity(z, FedAvg(**COMMON, regularizer=L1(LAM))) > 1e-2
    assert PROBLEM.stationarity(z, FedAvg(**COMMON, regularizer=L1(weight))) <= 1e-10


def test_where_feddc_stops():
    """x_i = z, g = 0, ∇f_i(z) + μ d_i = g_i and mean d_i = 0; which d_i is left open."""
    algorithm = FedDC(**COMMON, penalty=1.0)
    outcome = simulate(algorithm, PROBLEM, ROUNDS)
    z, d_i, g_i = outcome.points[-1], outcome.clients["d_i"], outcome.clients["g_i"]
    up, _ = algorithm.local(
        outcome.replica, outcome.clients, PROBLEM.oracle, round_key(0, ROUNDS, torch.arange(PROBLEM.num_clients))
    )
    for zero in (up["change"].dense(), outcome.replica["g"], PROBLEM.oracle(z, 0) + d_i - g_i, d_i.mean(0)):
        assert float(zero.abs().max()) <= 1e-10
    assert float(d_i.abs().max()) > 1e-2
    assert float(g_i.abs().max()) > 1e-2


@pytest.mark.parametrize(
    "algorithm",
    [FedProx(**COMMON), SCAFFOLD(**COMMON), SCAFFOLD(**COMMON, option="I"), *PENALIZED.values()],
    ids=lambda a: type(a).__name__,
)
def test_zeros_are_exact_with_the_server_prox_and_absent_with_subgradients(algorithm):
    for composite, sparse in (("server_prox", True), ("subgradient", False)):
        z = simulate(with_l1(algorithm, composite=composite), PROBLEM, 150).points[-1]
        assert bool((z == 0).any()) is sparse


PARTIAL = {"local_lr": 0.03, "local_steps": 3, "server_lr": 1.5}


@pytest.mark.parametrize(
    "algorithm",
    [
        SCAFFOLD(**PARTIAL),
        SCAFFOLD(**PARTIAL, option="I"),
        FedDyn(**PARTIAL, penalty=3.0),
        FedDyn(**PARTIAL, penalty=3.0, regularizer=L1(LAM)),
        FedDC(**PARTIAL, penalty=3.0),
        FedDC(**PARTIAL, penalty=3.0, regularizer=L1(LAM)),
    ],
    ids=["scaffold II", "scaffold I", "feddyn", "feddyn l1", "feddc", "feddc l1"],
)
def test_half_of_the_clients_still_reach_the_solution(algorithm):
    outcome = simulate(algorithm, PROBLEM, 600, size=3)
    assert PROBLEM.stationarity(outcome.points[-1], algorithm) <= 1e-8
    own = {**outcome.replica, **outcome.server}
    means = {"c", "g", "d"} & own.keys()  # what the server adds up is the mean over all clients
    assert means
    for part in means:
        torch.testing.assert_close(own[part], outcome.clients[f"{part}_i"].mean(0), rtol=0, atol=1e-12)


def test_some_of_the_clients_are_not_enough_for_fedavg():
    algorithm = FedAvg(**PARTIAL)
    assert PROBLEM.stationarity(simulate(algorithm, PROBLEM, 600, size=3).points[-1], algorithm) > 1e-3


def test_some_of_the_clients_are_refused_for_fedpd():
    with pytest.raises(ConfigError, match="FedPD needs all clients in every round"):
        Simulation(lasso(L1(0.05), num_clients=6, samples=30, dim=20, support=5), FedPD(), clients_per_round=3)
