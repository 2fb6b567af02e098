"""A single number that is not finite, anywhere, is noticed in its round and not forgotten."""

from dataclasses import dataclass

import pytest

from fedcef.algorithms import FedCEF, Zhang
from fedcef.core.errors import DivergedError
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.simulation.simulation import Simulation

PROBLEM = lasso(L1(0.05), num_clients=4, samples=10, dim=12, support=3)


@dataclass(frozen=True, kw_only=True, eq=False)
class Overflowing(FedCEF):
    """FedCEF with one wrong entry in the replica or in one client's state."""

    where: str = ""
    value: float = float("inf")

    def local(self, replica, client, oracle, key):
        up, proposed = super().local(replica, client, oracle, key)
        if self.where == "clients":
            proposed["v_i"][-1, -1] = self.value
        return up, proposed

    def advance(self, replica, down):
        after = super().advance(replica, down)
        if self.where == "replica":
            after["c"][3] = self.value
        return after


def played(rounds=1, **options):
    simulation = Simulation(PROBLEM, Overflowing(local_lr=1e-3, local_steps=2, regularizer=L1(0.05), **options))
    for _ in range(rounds):
        simulation.step()
    return simulation


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("where", ["replica", "clients"])
def test_one_entry_is_enough(where, value):
    simulation = played(where=where, value=value)
    assert simulation.state.finite.item() is False
    with pytest.raises(DivergedError, match="round 1 left values that are not finite"):
        simulation.check_finite()


def test_numbers_that_are_finite_may_be_large_or_zero():
    assert played(rounds=2).state.finite.item() is True
    assert played(where="replica", value=3e38).state.finite.item() is True
    assert played(where="clients", value=0.0).state.finite.item() is True


def test_it_is_not_forgotten():
    simulation = played(where="replica")
    simulation.state.replica["c"].zero_()
    assert simulation.state.finite.item() is False
    healthy = Simulation(PROBLEM, FedCEF(local_lr=1e-3, local_steps=2, regularizer=L1(0.05)))
    healthy.step()
    after, _ = healthy.engine.play(simulation.state, 1)
    assert after.finite.item() is False


def test_methods_whose_clients_keep_nothing_are_watched_by_their_replica():
    simulation = Simulation(PROBLEM, Zhang(local_lr=1e-3, local_steps=2, regularizer=L1(0.05)))
    simulation.step()
    assert simulation.state.finite.item() is True
