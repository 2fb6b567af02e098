"""FedBuff beside FedAvg: how old a change is, what that makes of it, and where it ends."""

import pytest
import torch

from fedcef.algorithms import FedAvg, FedBuff
from fedcef.optimizers import Momentum

from .setting import Quadratics, participants, play, settle, simulate

PROBLEM = Quadratics.random()
COMMON = {"local_lr": 0.02, "local_steps": 4}


@pytest.mark.parametrize("size", [None, 2])
def test_the_first_round_is_fedavgs(size):
    """Everyone holds the start point, and nothing is old."""
    buffered, plain = (simulate(method, PROBLEM, 1, size).points[0] for method in (FedBuff(**COMMON), FedAvg(**COMMON)))
    assert torch.equal(buffered, plain)


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_with_all_clients_changes_are_one_round_old(discount):
    """z(t+1) = z(t) + 2^-q · (FedAvg's step from z(t-1)), but for the first round."""
    outcome = simulate(FedBuff(**COMMON, discount=discount), PROBLEM, 8)
    points = [PROBLEM.z0, *outcome.points]
    for t in range(1, 8):
        x = points[t - 1].expand_as(PROBLEM.b)
        for k in range(4):
            x = x - 0.02 * PROBLEM.oracle(x, k)
        change = (x - points[t - 1]).mean(0)
        torch.testing.assert_close(points[t + 1], points[t] + 2**-discount * change, rtol=0, atol=1e-13)


def test_clients_hold_the_model_of_the_round_in_which_they_last_delivered():
    points, last = [PROBLEM.z0], [0] * 6
    for t, (replica, clients, _) in zip(range(12), play(FedBuff(**COMMON), PROBLEM, 2), strict=False):
        for client in participants(6, 2, t)[0].tolist():
            last[client] = t
        assert clients["n_i"].flatten().tolist() == last
        assert all(torch.equal(clients["x_i"][i], points[last[i]]) for i in range(6))
        assert float(replica["n"]) == t + 1
        points.append(replica["z"])


def test_a_server_update_has_its_place():
    outcome = simulate(FedBuff(**COMMON, server_update=Momentum(momentum=0.5)), PROBLEM, 5, 3)
    assert set(outcome.server) == {"m"}


def test_one_local_step_with_all_clients_solves_a_smooth_problem():
    z, distance = settle(FedBuff(local_lr=0.05, local_steps=1), PROBLEM, 4000, 1e-10)
    assert distance <= 1e-10
    torch.testing.assert_close(z, torch.linalg.solve(PROBLEM.a.mean(0), PROBLEM.b.mean(0)), rtol=0, atol=1e-8)


def test_clients_that_are_alike_are_solved_for_whoever_is_there():
    """Stale gradients still vanish at the optimum, so that nothing is left but its distance."""
    alike = Quadratics(PROBLEM.a[:1].repeat(6, 1, 1), PROBLEM.b[:1].repeat(6, 1))
    z, distance = settle(FedBuff(local_lr=0.1, local_steps=3), alike, 4000, 1e-9, size=2)
    assert distance <= 1e-9
    torch.testing.assert_close(z, torch.linalg.solve(alike.a[0], alike.b[0]), rtol=0, atol=1e-8)
