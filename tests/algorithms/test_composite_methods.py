"""FedMiD, Fast-FedDA, C-FedDA, FedDR and FedADMM: identities, pitfalls and known solutions, in float64."""

from functools import cache

import pytest
import torch

from fedcef.algorithms import CFedDA, FastFedDA, FedADMM, FedDR, FedMiD
from fedcef.algorithms.feddyn import FedDyn
from fedcef.algorithms.fedpd import FedPD
from fedcef.core.rng import round_key
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.simulation.simulation import Simulation

from .setting import Quadratics, received, settle, simulate

PROBLEM = Quadratics.random()
ALIKE = Quadratics(
    PROBLEM.a.mean(0, keepdim=True).expand_as(PROBLEM.a), PROBLEM.b.mean(0, keepdim=True).expand_as(PROBLEM.b)
)
ALONE = Quadratics(PROBLEM.a[:1], PROBLEM.b[:1])
LAM, K = 0.1, 5
ALPHA = 0.2 / (K * PROBLEM.smoothness)


def gap(a, b):
    return float((a - b).abs().max())


@cache
def minimiser(problem, weight):
    """By proximal gradient descent."""
    x, step, h = problem.z0, 1 / problem.smoothness, L1(weight)
    for _ in range(2_000):
        before, x = x, h.prox(x - step * problem.gradient(x), step)
        if gap(x, before) <= 1e-15:
            break
    return x


# FedMiD


@pytest.mark.parametrize(("server_prox", "weight"), [("published", 2 * LAM), ("none", LAM)])
def test_fedmid_as_published_solves_the_problem_for_twice_the_weight(server_prox, weight):
    algorithm = FedMiD(local_lr=0.2, local_steps=1, regularizer=L1(LAM), server_prox=server_prox)
    point = simulate(algorithm, ALONE, 1000).points[-1]
    assert gap(point, minimiser(ALONE, weight)) <= 1e-10
    assert gap(point, minimiser(ALONE, 3 * LAM - weight)) > 0.1


def test_fedmid_without_server_prox_is_exact_with_one_client():
    algorithm = FedMiD(local_lr=0.2, local_steps=K, regularizer=L1(LAM), server_prox="none")
    assert gap(simulate(algorithm, ALONE, 300).points[-1], minimiser(ALONE, LAM)) <= 1e-10


def test_fedmid_ends_beside_that_solution_by_an_amount_that_halves_with_the_step():
    def ends(server_prox):
        for local_lr, rounds in ((2 * ALPHA, 200), (ALPHA, 400)):
            algorithm = FedMiD(local_lr=local_lr, local_steps=K, regularizer=L1(LAM), server_prox=server_prox)
            point = simulate(algorithm, PROBLEM, rounds).points[-1]
            yield point, PROBLEM.stationarity(point, algorithm)

    for server_prox, weight in (("none", LAM), ("published", 2 * LAM)):
        (full, stationarity_at_full), (half, stationarity_at_half) = ends(server_prox)
        solution = minimiser(PROBLEM, weight)
        assert float((full - solution).norm()) > 1e-2
        assert float((half - solution).norm()) == pytest.approx(float((full - solution).norm()) / 2, rel=0.15)
        # the measure that shrinks for FedAvg does not: entries that should be 0 are of the size of the step
        assert stationarity_at_half > 0.9 * stationarity_at_full
        if server_prox == "none":
            assert int((solution == 0).sum()) > int((half == 0).sum()) == 0


# Fast-FedDA and C-FedDA


def dual_averaging(method, **options):
    return method(**{"strong_convexity": 0.5, "anchor_weight": 4.0, "regularizer": L1(LAM), **options})


def brute_force(algorithm, z0, points, weights, gradients):
    """argmin_u Σ_s [⟨g_s, u⟩ + weight_s (μ/4)|u - w_s|²] + n λ|u|₁ + (γ/2)|u - z0|², by bisection on its slope."""
    mu, gamma, n = algorithm.strong_convexity, algorithm.anchor_weight, len(gradients)

    def slope(u):
        pull = sum(weight * mu / 2 * (u - w) for weight, w in zip(weights, points, strict=True))
        return sum(gradients) + pull + n * algorithm.regularizer.weight * u.sign() + gamma * (u - z0)

    low, high = torch.full_like(z0, -100), torch.full_like(z0, 100)
    for _ in range(80):
        middle = (low + high) / 2
        rising = slope(middle) > 0
        low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
    return (low + high) / 2


@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.parametrize("method", [FastFedDA, CFedDA])
def test_points_of_dual_averaging_minimise_the_model_of_the_problem(method, local_steps):
    """One client: every point of Fast-FedDA, after n gradients, and every server point of C-FedDA, after r rounds."""
    algorithm = dual_averaging(method, local_steps=local_steps)
    points, gradients = [], []

    def oracle(x, k):
        g = ALONE.oracle(x, k)
        points.append(x.flatten().clone())
        gradients.append(g.flatten().clone())
        return g

    z0 = ALONE.z0
    replica = algorithm.replica_init(z0)
    for t in range(6):
        up, _ = algorithm.local(replica, {}, oracle, round_key(0, t, torch.arange(1)))
        down, _ = algorithm.server_step({}, replica, received(up))
        replica = algorithm.advance(replica, down)
    points.append(algorithm.model(replica))

    every = 1 if method is FastFedDA else local_steps
    for n in range(every, len(points), every):
        used = points[:n:every]
        expected = brute_force(algorithm, z0, used, [every] * len(used), gradients[:n])
        assert gap(points[n], expected) <= 1e-12


def test_fast_fedda_without_regulariser_is_gradient_descent_with_falling_steps():
    mu, gamma = 0.5, 4.0
    algorithm = FastFedDA(strong_convexity=mu, anchor_weight=gamma, local_steps=3)
    z = PROBLEM.z0
    for r, point in enumerate(simulate(algorithm, PROBLEM, 40).points):
        x = z.expand_as(PROBLEM.b)
        for k in range(3):
            x = x - PROBLEM.oracle(x, k) / (mu / 2 * (3 * r + k + 1) + gamma)
        z = x.mean(0)
        assert gap(point, z) <= 1e-12


def test_with_one_local_step_c_fedda_is_fast_fedda():
    fast, c = (simulate(dual_averaging(method, local_steps=1), PROBLEM, 60).points for method in (FastFedDA, CFedDA))
    assert max(gap(a, b) for a, b in zip(fast, c, strict=True)) <= 1e-12


@pytest.mark.parametrize("method", [FastFedDA, CFedDA])
def test_dual_averaging_approaches_the_solution_like_one_over_the_rounds(method):
    """Different clients drift apart by O(K/n) in round n/K, so there is no bias, but no fast convergence either."""
    points = simulate(dual_averaging(method, local_steps=K), PROBLEM, 800).points
    solution = minimiser(PROBLEM, LAM)
    at_200, at_400, at_800 = (float((points[r - 1] - solution).norm()) for r in (200, 400, 800))
    assert at_400 == pytest.approx(at_200 / 2, rel=0.1)
    assert at_800 == pytest.approx(at_400 / 2, rel=0.1)
    assert at_800 <= 2.5e-3


@pytest.mark.parametrize(
    ("method", "problem", "local_steps", "fast"),
    [
        (FastFedDA, PROBLEM, 1, True),  # no drift
        (FastFedDA, ALIKE, K, True),  # no difference
        (CFedDA, ALIKE, K, False),  # n runs ahead of the gradients in its local steps
    ],
    ids=["one step", "like clients", "c_fedda, like clients"],
)
def test_dual_averaging_without_drift(method, problem, local_steps, fast):
    """The loss is more strongly convex than μ = 0.1: the error falls like n^(-2λ/μ), along an eigenvalue λ."""
    points = simulate(dual_averaging(method, local_steps=local_steps, strong_convexity=0.1), problem, 600).points
    error = float((points[-1] - minimiser(PROBLEM, LAM)).norm())
    assert (error <= 1e-10) is fast
    assert error <= 1e-2


@pytest.mark.parametrize("method", [FastFedDA, CFedDA])
def test_dual_averaging_with_some_of_the_clients_gets_ever_closer(method):
    """The noise of the draw falls like 1/√rounds: by a factor of about 4 between the two windows."""
    points = simulate(dual_averaging(method, local_steps=3), PROBLEM, 1280, size=3).points
    errors = [float((point - minimiser(PROBLEM, LAM)).norm()) for point in points]
    early, late = (sum(errors[a:b]) / (b - a) for a, b in ((40, 80), (640, 1280)))
    assert late < early / 2
    assert late <= 0.05


def test_adding_up_points_without_gradients_misses_the_solution():
    """Negative control: the last local point in the sum too, as in the authors' code, solves ∇f + ∂h ∋ (μ/2K) w."""
    algorithm = dual_averaging(FastFedDA, local_steps=K, strong_convexity=0.2)
    z0 = w = points = ALIKE.z0
    gradients, n = torch.zeros_like(z0), torch.zeros(1, dtype=z0.dtype)
    for _ in range(500):
        for _ in range(K):
            gradients, n = gradients + ALIKE.gradient(w), n + 1
            w = algorithm.next_point(z0, points, gradients, n)
            points = points + w
        w = algorithm.next_point(z0, points, gradients, n)
        points = points + w
    shift = algorithm.strong_convexity / (2 * K) * torch.eye(len(z0), dtype=z0.dtype)
    biased, solution = minimiser(Quadratics(ALIKE.a - shift, ALIKE.b), LAM), minimiser(ALIKE, LAM)
    assert gap(simulate(algorithm, ALIKE, 500).points[-1], solution) <= 1e-8
    assert gap(w, solution) > 0.01
    assert gap(w, biased) <= 1e-3


# FedDR and FedADMM


LASSO = lasso(L1(0.05), num_clients=6, samples=30, dim=20, support=5, dtype=torch.float64)


@pytest.mark.parametrize("start", ["own", "server"])
@pytest.mark.parametrize("clients_per_round", [None, 2, 1])
def test_fedadmm_is_feddr_with_relaxation_one(clients_per_round, start):
    common = {"local_lr": 0.01, "local_steps": 3, "penalty_step": 0.2, "regularizer": L1(0.05), "start": start}
    admm, dr = (
        Simulation(LASSO, algorithm, batch_size=0, clients_per_round=clients_per_round)
        for algorithm in (FedADMM(**common), FedDR(**common, relaxation=1.0))
    )
    for _ in range(15):
        admm.step()
        dr.step()
        assert gap(admm.model(), dr.model()) <= 1e-12
    assert gap(admm.clients["x_i"], dr.clients["x_i"]) <= 1e-12


@pytest.mark.parametrize("clients_per_round", [None, 2, 1])
def test_the_servers_point_is_the_mean_of_the_reflections(clients_per_round):
    eta, common = 0.2, {"local_lr": 0.01, "local_steps": 3, "penalty_step": 0.2, "regularizer": L1(0.05)}
    admm, dr = (
        Simulation(LASSO, algorithm, batch_size=0, clients_per_round=clients_per_round)
        for algorithm in (FedADMM(**common), FedDR(**common, relaxation=1.6))
    )
    for _ in range(15):
        admm.step()
        dr.step()
        assert gap(admm.server["x_tilde"], (admm.clients["x_i"] + eta * admm.clients["u_i"]).mean(0)) <= 1e-12
        assert gap(dr.server["x_tilde"], (2 * dr.clients["x_i"] - dr.clients["y_i"]).mean(0)) <= 1e-12
        for simulation in (admm, dr):
            assert torch.equal(simulation.model(), L1(0.05).prox(simulation.server["x_tilde"], eta))


@pytest.mark.parametrize("start", ["own", "server"])
def test_fedadmm_with_all_clients_is_fedpd(start):
    common = {"local_lr": 0.05, "local_steps": 4, "penalty_step": 0.5, "regularizer": L1(LAM), "start": start}
    admm, pd = (simulate(method(**common), PROBLEM, 60).points for method in (FedADMM, FedPD))
    assert max(gap(a, b) for a, b in zip(admm, pd, strict=True)) <= 1e-12


def test_fedadmm_from_z_with_all_clients_is_feddyn():
    common = {"local_lr": 0.05, "local_steps": 4, "regularizer": L1(LAM)}
    admm = simulate(FedADMM(**common, penalty_step=0.5, start="server"), PROBLEM, 60).points
    dyn = simulate(FedDyn(**common, penalty=2.0), PROBLEM, 60).points
    assert max(gap(a, b) for a, b in zip(admm, dyn, strict=True)) <= 1e-12


@pytest.mark.parametrize("start", ["own", "server"])
@pytest.mark.parametrize("local_steps", [1, 10])
@pytest.mark.parametrize("eta", [0.3, 1.0])
@pytest.mark.parametrize("relaxation", [None, 0.5, 1.95])
def test_feddr_and_fedadmm_reach_a_stationary_point_however_few_their_local_steps(relaxation, eta, local_steps, start):
    common = {"local_lr": 1 / (PROBLEM.smoothness + 1 / eta), "local_steps": local_steps, "regularizer": L1(LAM)}
    options = {**common, "penalty_step": eta, "start": start}
    algorithm = FedADMM(**options) if relaxation is None else FedDR(**options, relaxation=relaxation)
    point, distance = settle(algorithm, PROBLEM, 500, 1e-10)
    assert algorithm.step == eta
    assert distance <= 1e-10
    assert gap(point, minimiser(PROBLEM, LAM)) <= 1e-9


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("relaxation", [None, 1.95])
def test_feddr_and_fedadmm_reach_it_with_some_of_the_clients(relaxation, size):
    options = {"local_lr": 0.2, "local_steps": 3, "regularizer": L1(LAM)}
    algorithm = FedADMM(**options) if relaxation is None else FedDR(**options, relaxation=relaxation)
    assert settle(algorithm, PROBLEM, 1500, 1e-8, size)[1] <= 1e-8


class OffAtTheStart(FedDR):
    def server_init(self, z0):
        return {"x_tilde": z0 + 1}


class FromY(FedDR):
    """The local steps begin at y_i: its gradient does not vanish in the limit."""

    def local(self, replica, client, oracle, key):
        y_i = client["y_i"] + self.relaxation * (replica["z"] - client["x_i"])
        return super().local(replica, {"x_i": y_i, "y_i": y_i - self.relaxation * (replica["z"] - y_i)}, oracle, key)


@pytest.mark.parametrize("broken", [OffAtTheStart, FromY])
def test_feddr_misses_the_solution_with_another_start(broken):
    options = {"local_lr": 1 / (PROBLEM.smoothness + 1), "local_steps": 3, "regularizer": L1(LAM)}
    right, wrong = (settle(method(**options), PROBLEM, 400, 1e-10)[1] for method in (FedDR, broken))
    assert right <= 1e-10
    assert wrong > 1e-2
