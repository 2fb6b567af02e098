"""EF21-PP and DASHA-PP: rounds by hand with some of the clients, and exact relations to other methods."""

from itertools import combinations, islice

import numpy as np
import pytest
import torch

from fedcef.algorithms import DASHAPP, EF21, EF21PP
from fedcef.compressors import QSGD, Identity, RandK, TopK
from fedcef.core.rng import Key, round_key
from fedcef.regularizers import L1
from fedcef.wire import frame_paper_nbytes

from .golden.by_hand import CLIENTS
from .golden.partial_methods import CASES, EVERYONE
from .setting import Quadratics, participants, play, received, simulate

PROBLEM = Quadratics.random()
N = PROBLEM.num_clients
COMMON = {"local_lr": 0.01, "server_lr": 1.5, "local_steps": 4, "regularizer": L1(0.1)}
TOP1, RAND2, UNBIASED = TopK(ratio=0.05), RandK(ratio=0.1), RandK(ratio=0.25, unbiased=True)


def equal_points(a, b):
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-12)


# By hand


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize("case", CASES)
def test_rounds_are_those_done_by_hand(case, size, rounds):
    algorithm, by_hand = CASES[case]
    cohorts = [participants(2, size, t)[0].tolist() for t in range(5)] if size else EVERYONE
    assert size is None or cohorts[:3] == [[0], [1], [0]]
    points = simulate(algorithm, CLIENTS, rounds, size).points
    np.testing.assert_allclose(points[-1].numpy(), by_hand(rounds, cohorts), rtol=0, atol=1e-14)


def test_three_rounds_of_dasha_pp_in_numbers():
    """f_0 = x² - x, f_1 = 2x²; z0 = -1; one client a round: 0, 1, 0; β = 1/2, nothing compressed, no regulariser."""
    clients = Quadratics(torch.tensor([[[2.0]], [[4.0]]]), torch.tensor([[1.0], [0.0]]))
    played = list(islice(play(DASHAPP(local_lr=0.5, local_steps=1), clients, 1), 3))
    expected = [
        # p = 1, no step behind it: k_0 = 0/1 + 1·(-3 - 0), h_0 = g_0 = -3; g = -3/2; z = -1 + 3/4
        (-0.25, [-3.0, 0.0], [-3.0, 0.0]),
        # p = 1/2, b = 2/3: k_1 = (-1 + 4)/(1/2) + (2/3)(-4 - 0) = 10/3; g = (-3 + 10/3)/2 = 1/6; z = -1/4 - 1/12
        (-1 / 3, [-3.0, 10 / 3], [-3.0, 10 / 3]),
        # k_0 = 2(-5/3 + 3/2) + (2/3)(-3/2 + 3) = 2/3; h_0 = g_0 = -7/3; g = (-7/3 + 10/3)/2 = 1/2; z = -1/3 - 1/4
        (-7 / 12, [-7 / 3, 10 / 3], [-7 / 3, 10 / 3]),
    ]
    for (replica, states, server), (z, g_i, h_i) in zip(played, expected, strict=True):
        assert replica["z"].item() == pytest.approx(z, abs=1e-6)
        assert states["g_i"].flatten().tolist() == pytest.approx(g_i, abs=1e-6)
        assert states["h_i"].flatten().tolist() == pytest.approx(h_i, abs=1e-6)
        assert server["g"].item() == pytest.approx(sum(g_i) / 2, abs=1e-6)


# Relations


@pytest.mark.parametrize("size", [1, 2, None])
@pytest.mark.parametrize("composite", ["server_prox", "subgradient"])
def test_ef21_pp_is_ef21_with_any_cohort(size, composite):
    ours, ef21 = (
        simulate(kind(**COMMON, compressor=TOP1, composite=composite), PROBLEM, 30, size) for kind in (EF21PP, EF21)
    )
    assert all(torch.equal(a, b) for a, b in zip(ours.points, ef21.points, strict=True))


@pytest.mark.parametrize("size", [1, 2])
def test_ef21_pp_is_ef21_in_which_the_others_send_nothing(size):
    """The authors' words, written out: the mean goes over everyone, and c_i = 0 for those who are away."""
    algorithm = EF21PP(**COMMON, compressor=TOP1)
    x, g_i = PROBLEM.z0, torch.zeros_like(PROBLEM.b)
    for t, point in enumerate(simulate(algorithm, PROBLEM, 40, size).points):
        cohort, _ = participants(N, size, t)
        away = torch.ones(N, dtype=torch.bool).index_fill(0, cohort, False)
        sent = TOP1.compress(PROBLEM.oracle(x, 0) - g_i, round_key(0, t, torch.arange(N))).dense()
        g_i = g_i + sent.masked_fill(away[:, None], 0)
        x = algorithm.regularizer.prox(x - algorithm.step * g_i.mean(0), algorithm.step)
        torch.testing.assert_close(point, x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("compressor", [TOP1, RAND2, Identity()], ids=["top1", "rand2", "identity"])
def test_dasha_pp_with_everyone_and_no_memory_of_compression_is_ef21(compressor):
    """b = 1: h_i is the gradient at z; a = 1: Δ_i = C(h_i - g_i)."""
    equal_points(*(simulate(kind(**COMMON, compressor=compressor), PROBLEM, 40).points for kind in (DASHAPP, EF21)))


def test_uncompressed_and_with_everyone_it_is_proximal_gradient_descent():
    algorithm = DASHAPP(**COMMON)
    x = PROBLEM.z0
    for point in simulate(algorithm, PROBLEM, 40).points:
        x = algorithm.regularizer.prox(x - algorithm.step * PROBLEM.gradient(x), algorithm.step)
        torch.testing.assert_close(point, x, rtol=0, atol=1e-12)


def test_with_everyone_it_is_dasha():
    """arXiv 2202.01268 with an unbiased C, ω = 3, written out: no h_i, but the gradient at the last point."""
    algorithm, a = DASHAPP(**COMMON, compressor=UNBIASED), 1 / 7
    x, g_i = PROBLEM.z0, torch.zeros_like(PROBLEM.b)
    old = torch.zeros_like(PROBLEM.b)  # ours begins with h_i = 0 in the place of a gradient
    for t, point in enumerate(simulate(algorithm, PROBLEM, 40).points):
        new = PROBLEM.oracle(x, 0)
        g_i = g_i + UNBIASED.compress(new - old - a * (g_i - old), round_key(0, t, torch.arange(N))).dense()
        x, old = algorithm.regularizer.prox(x - algorithm.step * g_i.mean(0), algorithm.step), new
        torch.testing.assert_close(point, x, rtol=0, atol=1e-12)


def test_dasha_pp_with_some_of_the_clients_is_the_published_rule():
    """k_i, m_i, a = p/(2ω+1) and b = p/(2-p) as in the authors' code, which steps before it asks the cohort."""
    algorithm, p = DASHAPP(**COMMON, compressor=UNBIASED), 2 / N
    a, b = p / (2 * 3 + 1), p / (2 - p)
    points = simulate(algorithm, PROBLEM, 40, size=2).points
    cohort, _ = participants(N, 2, 0)
    x, g_i, h_i = PROBLEM.z0, torch.zeros_like(PROBLEM.b), torch.zeros_like(PROBLEM.b)
    h_i[cohort] = PROBLEM.oracle(x, 0)[cohort]  # the first round: their start, for those who are there
    g_i[cohort] = UNBIASED.compress(h_i, round_key(0, 0, torch.arange(N))).dense()[cohort]
    for t in range(1, 41):
        old, x = x, algorithm.regularizer.prox(x - algorithm.step * g_i.mean(0), algorithm.step)
        torch.testing.assert_close(points[t - 1], x, rtol=0, atol=1e-12)
        cohort, _ = participants(N, 2, t)
        k = PROBLEM.oracle(x, 0) - PROBLEM.oracle(old, 0) - b * (h_i - PROBLEM.oracle(old, 0))
        m = UNBIASED.compress(k / p - a / p * (g_i - h_i), round_key(0, t, torch.arange(N))).dense()
        h_i[cohort] += k[cohort] / p
        g_i[cohort] += m[cohort]


def test_the_mean_of_the_tracked_gradients_is_right_on_average():
    """Over all cohorts, mean h_i moves as if everyone had taken part with p = 1: 1/p makes up for the others."""
    algorithm = DASHAPP(**COMMON, compressor=TOP1)
    replica, clients, _ = list(islice(play(algorithm, PROBLEM, 2), 7))[-1]
    now, before = PROBLEM.oracle(replica["z"], 0), PROBLEM.oracle(replica["z_prev"], 0)
    p, h_i = 2 / N, clients["h_i"]
    wanted = (h_i + now - before + p / (2 - p) * (before - h_i)).mean(0)
    means = []
    for pair in combinations(range(N), 2):
        cohort = torch.tensor(pair)
        some = Quadratics(PROBLEM.a[cohort], PROBLEM.b[cohort])
        mine = {name: table[cohort] for name, table in clients.items()}
        _, proposed = algorithm.local(replica, mine, some.oracle, round_key(0, 7, cohort))
        means.append(h_i.index_copy(0, cohort, proposed["h_i"]).mean(0))
    torch.testing.assert_close(torch.stack(means).mean(0), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [EF21PP, DASHAPP])
@pytest.mark.parametrize("size", [1, 2, 6])
def test_the_server_knows_the_mean_of_the_clients_estimates(kind, size):
    outcome = simulate(kind(**COMMON, compressor=TOP1), PROBLEM, 50, size)
    torch.testing.assert_close(outcome.server["g"], outcome.clients["g_i"].mean(0), rtol=0, atol=1e-12)


# What it costs, and what it asks for


def test_both_gradients_are_taken_on_the_same_samples():
    asked = []

    def oracle(x, k):
        asked.append((float(x[0]), k))
        return x.clone()

    algorithm = DASHAPP(local_steps=3)
    z0 = torch.zeros(2)
    replica = algorithm.replica_init(z0) | {"z": z0 + 1}
    algorithm.local(replica, algorithm.client_init(z0), oracle, Key(torch.tensor(0), torch.tensor(0)))
    assert sorted(asked) == [(at, k) for at in (0.0, 1.0) for k in range(3)]


def test_the_authors_momentum_follows_the_compressor():
    z0, key = torch.zeros(8), round_key(0, 0, torch.tensor(0))
    client = {"g_i": z0 - 1, "h_i": z0}

    class Heard(QSGD):
        def compress(self, x, key):
            heard.append(float(x[0]))
            return super().compress(x, key)

    heard = []
    for compressor in (Heard(unbiased=True), Heard(unbiased=False)):
        algorithm = DASHAPP(local_steps=1, compressor=compressor)
        algorithm.local(algorithm.replica_init(z0), client, lambda x, k: x.clone(), key)  # k_i = 0, h_i - g_i = 1
    omega = Heard(unbiased=True).variance(8)
    assert heard == pytest.approx([1 / (2 * omega + 1), 1.0])


def test_bytes():
    algorithm, z0 = DASHAPP(**COMMON, compressor=TOP1), PROBLEM.z0
    replica, clients = algorithm.replica_init(z0), {k: v.repeat(N, 1) for k, v in algorithm.client_init(z0).items()}
    up, _ = algorithm.local(replica, clients, PROBLEM.oracle, round_key(0, 0, torch.arange(N)))
    down, _ = algorithm.server_step(algorithm.server_init(z0), replica, received(up))
    assert frame_paper_nbytes(up).tolist() == [8] * N
    assert int(frame_paper_nbytes(down)) == 4 * len(z0) + 4
