"""Step sizes that change from round to round."""

import math
from itertools import pairwise

import pytest
import torch

from fedcef import run
from fedcef.algorithms import ALGORITHMS, FedCEF, FedDA
from fedcef.compressors import TopK
from fedcef.core.errors import ConfigError
from fedcef.core.schedules import SCHEDULES, Constant, Cosine, Step
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.simulation.simulation import Simulation

PROBLEM = lasso(L1(0.05), num_clients=4, samples=20, dim=12, support=4, dtype=torch.float64)
COMMON = {"local_lr": 0.01, "local_steps": 3, "regularizer": PROBLEM.regularizer}


def factors(schedule, rounds):
    return [float(schedule.factor(torch.tensor(t))) for t in range(rounds)]


def test_the_factors():
    assert factors(Constant(), 3) == [1, 1, 1]
    assert factors(Step(every=2, decay=0.5), 6) == [1, 1, 0.5, 0.5, 0.25, 0.25]
    half = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 4))
    assert factors(Cosine(final=0.1, rounds=4), 6) == pytest.approx([1, half, 0.55, 1.1 - half, 0.1, 0.1])


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_starts_at_one_and_never_grows(name):
    found = factors(SCHEDULES[name]().for_rounds(50), 60)
    assert found[0] == 1
    assert all(0 <= b <= a for a, b in pairwise(found))


def test_cosine_takes_the_rounds_of_the_run_unless_it_has_its_own():
    assert Cosine().for_rounds(7).rounds == 7
    assert Cosine(rounds=3).for_rounds(7).rounds == 3
    with pytest.raises(ConfigError, match=r"give Cosine\(rounds=\.\.\.\)\.$"):
        Cosine().factor(torch.tensor(0))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_scheduled_round_is_a_round_with_that_step(name):
    """For every method: a schedule that has fallen to 1/4 is the method with a quarter of the step sizes."""
    kind = ALGORITHMS[name]
    compressor = {"compressor": TopK(ratio=0.3)} if kind.compresses else {}
    quarter = Step(every=1, decay=0.5)
    small = {"local_lr": COMMON["local_lr"] / 4, "server_lr": 0.25}
    scheduled = Simulation(
        PROBLEM, kind(**COMMON, **compressor), batch_size=5, local_schedule=quarter, server_schedule=quarter
    )
    constant = Simulation(PROBLEM, kind(**{**COMMON, **small}, **compressor), batch_size=5)
    with torch.no_grad():
        a, b = (simulation.engine.play(simulation.state, 2)[0] for simulation in (scheduled, constant))
    for name, tensor in a.tensors().items():
        assert torch.allclose(tensor, b.tensors()[name], rtol=1e-12, atol=1e-14), name


def test_dual_averaging_adds_up_the_steps_that_were_taken():
    simulation = Simulation(PROBLEM, FedDA(**COMMON), batch_size=5, local_schedule=Step(every=1, decay=0.5))
    for _ in range(3):
        simulation.step()
    assert float(simulation.replica["elapsed"]) == pytest.approx(0.03 * (1 + 0.5 + 0.25))


def test_from_python_and_to_a_smaller_noise_ball():
    def distance(schedule):
        history = run(
            PROBLEM, FedCEF(local_lr=0.05, local_steps=3), rounds=300, eval_every=300, batch_size=5,
            local_schedule=schedule,
        )  # fmt: skip
        return history["stationarity"][-1]

    assert distance(Cosine()) < 0.2 * distance(Constant())
