"""FedCEF with some of the clients: the shared rule by hand, its invariant, and what it is with all or with new ones."""

from itertools import islice

import numpy as np
import pytest
import torch

from fedcef.algorithms import FedAvg, FedCEF, FedPAQ
from fedcef.compressors import Identity, TopK
from fedcef.core.rng import round_key
from fedcef.regularizers import L1
from fedcef.wire import Dense

from .golden.by_hand import ALPHA, BETA, CLIENTS, COMMON, LAM, Z0, K, grad, soft, top1
from .setting import Quadratics, participants, play, received, simulate

PROBLEM = Quadratics.random()
N = PROBLEM.num_clients
OPTIONS = {"local_lr": 0.01, "server_lr": 1.5, "local_steps": 4, "regularizer": L1(0.1), "compressor": TopK(ratio=0.1)}
TOP1 = TopK(ratio=1 / 3)
LOSSY = {"downlink": "lossy", "down_compressor": TOP1}


def local_gradient(i, z, drift):
    """The mean of the K gradients along client i's corrected steps."""
    x_hat, x, total = z.copy(), z.copy(), np.zeros(3)
    for k in range(K):
        g = grad(i, x)
        total += g
        x_hat = x_hat - ALPHA * (g + drift)
        x = soft(x_hat, (k + 1) * ALPHA * LAM)
    return total / K


def by_hand(cohorts, mixing, own, lossy):
    """b and d_i as vectors of their own, for half of two clients in a round: c = b + mean d_i is never assumed."""
    s = 0.5
    own = min(own, mixing / s)
    z, c, d, d_mean = Z0.copy(), np.zeros(3), np.zeros((2, 3)), np.zeros(3)
    for (i,) in cohorts:
        b = (1 - own * s / mixing) * c
        delta = top1(local_gradient(i, z, c - b - d[i]) - b - d[i])
        target = b + d_mean + mixing * delta
        d[i] += own * delta
        d_mean += own * delta / 2
        c = c + top1(target - c) if lossy else target
        z = soft(z - BETA * c, BETA * LAM)
    return z, c, d


@pytest.mark.parametrize("rounds", [1, 2, 3, 6])
@pytest.mark.parametrize("downlink", [{}, {"downlink": "dense"}, LOSSY], ids=["increment", "dense", "lossy"])
@pytest.mark.parametrize(("mixing", "own"), [(1.0, 0.5), (0.5, 0.5), (0.3, 0.9)])
def test_rounds_are_those_done_by_hand(mixing, own, downlink, rounds):
    cohorts = [participants(2, 1, t)[0].tolist() for t in range(rounds)]
    algorithm = FedCEF(**COMMON, compressor=TOP1, mixing=mixing, own_part=own, **downlink)
    end = simulate(algorithm, CLIENTS, rounds, 1)
    z, c, d = by_hand(cohorts, mixing, own, "lossy" in downlink.values())
    np.testing.assert_allclose(end.points[-1].numpy(), z, rtol=0, atol=1e-13)
    np.testing.assert_allclose(end.replica["c"].numpy(), c, rtol=0, atol=1e-12)
    np.testing.assert_allclose(min(own, mixing / 0.5) * end.clients["c_i"].numpy(), d, rtol=0, atol=1e-13)


def test_two_rounds_in_numbers():
    """f_0 = x² - x, f_1 = 2x²; z0 = -1; one client a round: 0, then 1; β = 1/2, ω = 1/2, η = 1, so κ = 3/4."""
    clients = Quadratics(torch.tensor([[[2.0]], [[4.0]]]), torch.tensor([[1.0], [0.0]]))
    algorithm = FedCEF(local_lr=0.5, local_steps=1, compressor=Identity())
    (first, *_), (second, states, _) = islice(play(algorithm, clients, 1), 2)
    # g_0(-1) = -3, nothing known: Δ = -3, c = -3; z = -1 + 3/2
    assert (first["c"].item(), first["z"].item()) == (-3.0, 0.5)
    # g_1(1/2) = 2, known 3/4·(-3) = -9/4: Δ = 17/4, c = 5/4; z = 1/2 - 5/8
    assert (second["c"].item(), second["z"].item()) == (1.25, -0.125)
    # the mean of what is known: 3/4·5/4 + 1/2·(-3 + 17/4)/2 = 5/4 = c
    assert states["c_i"].flatten().tolist() == [-3.0, 4.25]


@pytest.mark.parametrize("size", [1, 2, N - 1])
@pytest.mark.parametrize("options", [{}, {"mixing": 0.4}, {"own_part": 1.0, "mixing": 0.2}], ids=str)
def test_the_control_is_the_mean_of_what_is_known_of_all_clients(size, options):
    algorithm = FedCEF(**OPTIONS, **options)
    for replica, clients, _ in islice(play(algorithm, PROBLEM, size), 30):
        gap = algorithm.for_share(size / N).diagnostics(replica, {"c_i": clients["c_i"].mean(0)})["control_gap"]
        assert float(gap) <= 1e-13


@pytest.mark.parametrize("downlink", ["increment", "dense", "lossy"])
def test_it_is_still_the_mean_when_fewer_arrive_than_were_asked(downlink):
    algorithm = FedCEF(**OPTIONS, mixing=0.5, downlink=downlink, down_compressor=Identity()).for_share(3 / N)
    replica, server = algorithm.replica_init(PROBLEM.z0), algorithm.server_init(PROBLEM.z0)
    clients = torch.zeros_like(PROBLEM.b)
    for t in range(20):
        cohort, _ = participants(N, 1 + t % 3, t)
        some = Quadratics(PROBLEM.a[cohort], PROBLEM.b[cohort])
        up, mine = algorithm.local(replica, {"c_i": clients[cohort]}, some.oracle, round_key(0, t, cohort))
        down, server = algorithm.server_step(server, replica, received(up, t, share=len(cohort) / N))
        replica, clients = algorithm.advance(replica, down), clients.index_copy(0, cohort, mine["c_i"])
        assert float(algorithm.diagnostics(replica, {"c_i": clients.mean(0)})["control_gap"]) <= 1e-12


@pytest.mark.parametrize("mixing", [1.0, 0.5])
def test_with_all_clients_the_rule_has_no_effect(mixing):
    ours, others = (
        simulate(FedCEF(**OPTIONS, mixing=mixing, participation=rule, own_part=own), PROBLEM, 25)
        for rule, own in (("shared", 0.3), ("averaged", 0.5))
    )
    assert all(torch.equal(a, b) for a, b in zip(ours.points, others.points, strict=True))
    assert ours.clients.keys() == others.clients.keys() == {"c_i", "v_i"}


def test_a_client_keeps_one_vector_where_some_are_away():
    algorithm = FedCEF(**OPTIONS, mixing=0.5)
    assert algorithm.for_share(0.5).client_init(PROBLEM.z0).keys() == {"c_i"}
    assert FedCEF(**OPTIONS, participation="averaged").for_share(0.5).client_init(PROBLEM.z0).keys() == {"c_i", "v_i"}


def of_new_clients(algorithm, many, share, size, rounds):
    """The model after every round, in each of which the next `size` clients take part, for the first and last time."""
    algorithm = algorithm.for_share(share)
    replica, server = algorithm.replica_init(many.z0), algorithm.server_init(many.z0)
    for t in range(rounds):
        cohort = torch.arange(size * t, size * (t + 1))
        some = Quadratics(many.a[cohort], many.b[cohort])
        new = {name: v.repeat(size, 1) for name, v in algorithm.client_init(many.z0).items()}
        up, _ = algorithm.local(replica, new, some.oracle, round_key(0, t, cohort))
        down, server = algorithm.server_step(server, replica, received(up, t, share=share))
        replica = algorithm.advance(replica, down)
        yield algorithm.model(replica)


def test_clients_that_are_seen_once_make_it_fedavg():
    """Uncompressed, N → ∞: nobody has a part of its own, so c is a cohort's mean gradient and corrects nothing."""

    def distance(num_clients):
        many = Quadratics(PROBLEM.a.repeat(num_clients // N, 1, 1), PROBLEM.b.repeat(num_clients // N, 1))
        same = {"local_lr": 0.01, "server_lr": 1.5, "local_steps": 4}
        ends = [list(of_new_clients(kind(**same), many, 2 / num_clients, 2, 5))[-1] for kind in (FedCEF, FedAvg)]
        return float((ends[0] - ends[1]).norm())

    near, far = distance(1000 * N), distance(10 * N)
    assert near <= far / 50
    assert near <= 1e-3


def test_compressed_it_beats_fedavg_on_clients_that_are_seen_once_at_the_best_step_of_each_but_not_at_a_long_one():
    """An entry of c acts on z until it is sent again, so a cohort's noise acts longer, and steps must be shorter."""
    size, rounds, steps = 2, 160, (0.0025, 0.005, 0.01, 0.02, 0.05)
    compressor = TopK(ratio=0.05, values="sign")
    gaps = {"ours": torch.zeros(len(steps)), "theirs": torch.zeros(len(steps))}
    for seed in range(2):
        many = Quadratics.random(size * rounds, 20, seed)
        a, solution = many.a.mean(0), torch.linalg.solve(many.a.mean(0), many.b.mean(0))
        for i, step in enumerate(steps):
            same = {"local_lr": step, "local_steps": 4, "compressor": compressor}
            for name, algorithm in (("ours", FedCEF(**same, mixing=0.5)), ("theirs", FedPAQ(**same))):
                models = list(of_new_clients(algorithm, many, 1e-6, size, rounds))[-rounds // 4 :]
                gaps[name][i] += sum(float((z - solution) @ a @ (z - solution)) for z in models) / len(models)
    assert gaps["ours"].min() < gaps["theirs"].min()
    assert gaps["ours"].argmin() < gaps["theirs"].argmin()
    assert gaps["ours"][-1] > gaps["theirs"][-1]


def test_positions_in_context_change_no_number():
    plain, coded = (
        simulate(FedCEF(**OPTIONS, **LOSSY, index_code=code), PROBLEM, 20, 2) for code in ("plain", "context")
    )
    assert all(torch.equal(a, b) for a, b in zip(plain.points, coded.points, strict=True))
    assert coded.replica.keys() - plain.replica.keys() == {"activity"}


def test_a_lost_state_is_taken_out_and_the_limit_is_the_same():
    """The server takes what it had sent out of its next message: c stays the mean, and settles again in time."""
    algorithm = FedCEF(**{**OPTIONS, "compressor": Identity()}, mixing=0.5).for_share(3 / N)
    replica, clients, lost = algorithm.replica_init(PROBLEM.z0), torch.zeros_like(PROBLEM.b), None
    sizes = []
    for t in range(3000):
        cohort, _ = participants(N, 3, t)
        some = Quadratics(PROBLEM.a[cohort], PROBLEM.b[cohort])
        if t == 1500:
            lost = clients[cohort[0]].clone()
            clients[cohort[0]] = 0.0
        up, mine = algorithm.local(replica, {"c_i": clients[cohort]}, some.oracle, round_key(0, t, cohort))
        sent = up["delta"].dense().clone()
        if t == 1500:
            sent[0] -= lost
        down, _ = algorithm.server_step({}, replica, received({"delta": Dense(sent)}, t, share=3 / N))
        replica, clients = algorithm.advance(replica, down), clients.index_copy(0, cohort, mine["c_i"])
        assert float(algorithm.diagnostics(replica, {"c_i": clients.mean(0)})["control_gap"]) <= 1e-11
        sizes.append(PROBLEM.stationarity(replica["z"], algorithm))
    assert sizes[1499] <= 1e-8
    assert max(sizes[1500:]) >= 1e-4
    assert sizes[-1] <= 1e-8


@pytest.mark.parametrize("downlink", [{}, {"downlink": "dense"}, LOSSY], ids=["increment", "dense", "lossy"])
def test_without_an_own_part_clients_keep_nothing(downlink):
    cohorts = [participants(2, 1, t)[0].tolist() for t in range(4)]
    end = simulate(FedCEF(**COMMON, compressor=TOP1, mixing=0.5, own_part=0, **downlink), CLIENTS, 4, 1)
    z, c, _ = by_hand(cohorts, 0.5, 0, "lossy" in downlink.values())
    assert end.clients == {}
    np.testing.assert_allclose(end.points[-1].numpy(), z, rtol=0, atol=1e-13)
    np.testing.assert_allclose(end.replica["c"].numpy(), c, rtol=0, atol=1e-12)


def test_without_an_own_part_and_without_loss_it_is_fedavg():
    """c is then the cohort's mean gradient, and nothing corrects the local steps."""
    options = {"local_lr": 0.01, "server_lr": 1.5, "local_steps": 4}
    ours = simulate(FedCEF(**options, compressor=Identity(), own_part=0), PROBLEM, 6, 3)
    theirs = simulate(FedAvg(**options), PROBLEM, 6, 3)
    for mine, other in zip(ours.points, theirs.points, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)
