"""Scaffnew, CompressedScaffnew, TAMUNA, FedComLoc and LoCoDL: where they end, with exact gradients, in float64."""

from itertools import islice, pairwise

import pytest
import torch

from fedcef.algorithms import TAMUNA, CompressedScaffnew, FedComLoc, LoCoDL, Scaffnew
from fedcef.compressors import RandK, TopK
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1, Zero
from fedcef.simulation.simulation import Simulation
from fedcef.wire import Dense, frame_nbytes

from .scaffnew_setting import LONG, PROBLEM, H, K, N, play_told
from .setting import play, settle, simulate


class Logistic:
    """Logistic regression with a ridge, six unlike clients, exact gradients; what the engines ask of a problem."""

    def __init__(self, dim=8, samples=12):
        g = torch.Generator().manual_seed(3)
        self.x = torch.randn(N, samples, dim, generator=g, dtype=torch.float64) + torch.randn(N, 1, dim, generator=g)
        self.y = torch.randn(N, samples, generator=g, dtype=torch.float64).sign()
        self.num_clients, self.z0 = N, torch.zeros(dim, dtype=torch.float64)
        self.smoothness = float(torch.linalg.eigvalsh(self.x.mT @ self.x / samples).max()) / 4 + 0.05

    def oracle(self, z, k):
        slope = -self.y * torch.sigmoid(-self.y * (self.x @ z.expand(N, -1).unsqueeze(-1)).squeeze(-1))
        return (slope.unsqueeze(-1) * self.x).mean(1) + 0.05 * z

    def stationarity(self, z, algorithm):
        step = algorithm.step
        return float((z - algorithm.regularizer.prox(z - step * self.oracle(z, 0).mean(0), step)).norm() / step)


RANDOM = {"compressor": RandK(ratio=0.25, unbiased=True), "scaling": 1 / 7, "server_lr": 0.25}  # ω = 3
EXACT = {
    "scaffnew": Scaffnew,
    "scaffnew at random": lambda **o: Scaffnew(**o, probability=0.4),
    "scaffnew with a server step": lambda **o: Scaffnew(**o, server_lr=1.5),
    "compressed_scaffnew": lambda **o: CompressedScaffnew(**o, senders=2),
    "compressed_scaffnew at random": lambda **o: CompressedScaffnew(**o, senders=3, probability=0.4),
    "compressed_scaffnew with a server step": lambda **o: CompressedScaffnew(**o, senders=4, server_lr=1.5),
    "fedcomloc": FedComLoc,
    "locodl": LoCoDL,
    "locodl top-k": lambda **o: LoCoDL(**o, compressor=TopK(ratio=0.25)),
    "locodl rand-k": lambda **o: LoCoDL(**o, **RANDOM),
    "locodl rand-k shifted": lambda **o: LoCoDL(**o, **RANDOM, shift=0.05),
}


@pytest.mark.parametrize("h", [Zero(), H], ids=["smooth", "l1"])
@pytest.mark.parametrize("case", EXACT)
def test_the_fixed_point_is_exact_also_with_a_regulariser(case, h):
    z, distance = settle(EXACT[case](**LONG, regularizer=h), PROBLEM, 1500, 1e-9)
    assert distance <= 1e-9
    assert bool((z == 0).any()) is (h is H)


@pytest.mark.parametrize("h", [Zero(), L1(0.05)], ids=["ridge", "l1"])
@pytest.mark.parametrize("case", EXACT)
def test_logistic_regression_is_solved(case, h):
    problem = Logistic()
    options = {"local_lr": 1 / (K * problem.smoothness), "local_steps": K, "regularizer": h}
    assert settle(EXACT[case](**options), problem, 6000, 1e-8)[1] <= 1e-8


@pytest.mark.parametrize("h", [Zero(), H], ids=["smooth", "l1"])
@pytest.mark.parametrize(("size", "senders"), [(2, 2), (3, 2), (4, 3), (3, 0)])
def test_tamuna_with_cohorts_that_are_told_is_exact(size, senders, h):
    tamuna = TAMUNA(**LONG, senders=senders, regularizer=h)
    rounds = islice(play_told(tamuna, PROBLEM, size), 1500)
    _, clients, server = next(r for r in rounds if PROBLEM.stationarity(r[0]["z"], tamuna) <= 1e-9)
    torch.testing.assert_close(server["h"], clients["h_i"].mean(0), rtol=0, atol=1e-10)


def test_tamuna_with_cohorts_that_learn_it_when_they_return_is_not():
    """The order of the published code; why the engine tells them."""
    tamuna = TAMUNA(**LONG, senders=2)
    *_, (replica, clients, _) = islice(play_told(tamuna, PROBLEM, 4, told=False), 400)
    assert not PROBLEM.stationarity(replica["z"], tamuna) < 0.5
    assert not clients["h_i"].mean(0).norm() < 0.5


def told_in_the_simulator(h, rounds):
    problem = lasso(h, num_clients=N, samples=30, dim=20, support=5, dtype=torch.float64)
    tamuna = TAMUNA(local_lr=0.01, local_steps=K, senders=2, regularizer=h)
    simulation = Simulation(problem, tamuna, batch_size=0, clients_per_round=3, precision="float64")
    for _ in range(rounds):
        simulation.step()
    return problem, simulation


def test_the_simulator_tells_its_cohorts():
    problem, simulation = told_in_the_simulator(H, 1000)
    z, x, y = simulation.model(), problem.train.inputs, problem.train.targets  # as many samples from each client
    g = ((x @ z - y).unsqueeze(-1) * x).mean(0)
    assert float((z - H.prox(z - g, 1.0)).norm()) <= 1e-8


def test_what_they_are_told_is_counted():
    """A frame for everyone who took part in a round, and for those who did not and take part in the next."""
    _, simulation = told_in_the_simulator(Zero(), 20)
    cohorts = [set(simulation.engine.rounds.cohort(t).tolist()) for t in range(21)]
    told = sum(3 + len(after - before) for before, after in pairwise(cohorts))
    frame = int(frame_nbytes({"z": Dense(simulation.model())}))
    assert simulation.ledger.totals()["wire_down_bytes"] == told * frame


@pytest.mark.parametrize("variant", ["com", "local", "global"])
def test_fedcomloc_misses_by_what_no_step_cures(variant):
    for share in (1, 0.25):
        options = {"local_lr": share * LONG["local_lr"], "local_steps": K, "compressor": TopK(ratio=0.5)}
        method = FedComLoc(**options, variant=variant)
        points = simulate(method, PROBLEM, int(200 / share)).points
        assert min(PROBLEM.stationarity(z, method) for z in points[-20:]) > 0.05
    if variant == "global":
        assert int((points[-1] != 0).sum()) == 10


@pytest.mark.parametrize("compressor", [TopK(ratio=0.2), RandK(ratio=0.5, unbiased=True)])
def test_the_controls_of_locodl_balance(compressor):
    method = LoCoDL(**LONG, compressor=compressor, scaling=0.3, server_lr=0.5, regularizer=H, shift=0.1)
    for replica, clients, _ in islice(play(method, PROBLEM), 30):
        u_mean = (clients["a_i"] + replica["v"]).mean(0)
        torch.testing.assert_close(u_mean, -replica["v"], rtol=0, atol=1e-11)
