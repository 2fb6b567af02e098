"""The round loop: cohorts, weights, commits."""

import pytest
import torch

from fedcef.algorithms import ALGORITHMS, FedAvg, FedCEF, Zhang
from fedcef.algorithms.received import mean_of
from fedcef.compressors import TopK
from fedcef.core.errors import ConfigError
from fedcef.problems.lasso import Linear, half_mean_square, lasso
from fedcef.problems.problem import Problem
from fedcef.python.run import run
from fedcef.regularizers import L1
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.simulation import Simulation
from fedcef.wire import Dense

PROBLEM = lasso(L1(0.05), num_clients=6, samples=30, dim=20, support=5, dtype=torch.float64)
COMMON = {"local_lr": 0.005, "local_steps": 3, "regularizer": PROBLEM.regularizer}


def fedcef(**options):
    return FedCEF(**{**COMMON, "compressor": TopK(ratio=0.2), **options})


def states(simulation):
    return {**simulation.replica, **simulation.clients}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_same_seed_same_run_and_other_seed_other_run(name):
    def after(seed):
        simulation = Simulation(PROBLEM, ALGORITHMS[name](**COMMON), seed=seed, batch_size=5)
        for _ in range(4):
            simulation.step()
        return simulation.model()

    assert torch.equal(after(1), after(1))
    assert not torch.equal(after(1), after(2))


def test_a_cohort_is_drawn_and_others_keep_their_state():
    simulation = Simulation(PROBLEM, fedcef(), batch_size=5, clients_per_round=2)
    drawn = set()
    for _ in range(12):
        cohort = simulation.engine.rounds.cohort(simulation.round)
        assert len(cohort) == len(set(cohort.tolist())) == 2
        drawn |= set(cohort.tolist())
        before = simulation.clients["c_i"].clone()
        simulation.step()
        changed = (simulation.clients["c_i"] != before).any(-1)
        assert set(changed.nonzero().flatten().tolist()) <= set(cohort.tolist())
        gap = simulation.diagnostics()["control_gap"]
        assert float(gap) <= 1e-12
    assert drawn == set(range(6))


@pytest.mark.parametrize(
    ("clients_per_round", "rounds", "participation"),
    [(1, 700, "averaged"), (3, 250, "averaged"), (1, 1200, "shared"), (3, 400, "shared")],
)
def test_some_of_the_clients_still_reach_the_solution(clients_per_round, rounds, participation):
    g = torch.Generator().manual_seed(0)
    inputs = torch.randn(6, 40, 8, generator=g, dtype=torch.float64)
    targets = inputs[..., 0] + torch.randn(6, 40, generator=g, dtype=torch.float64)
    model = Linear(torch.ones(8, dtype=torch.float64))
    problem = Problem.build(model, half_mean_square, list(zip(inputs, targets, strict=True)), regularizer=L1(0.05))
    algorithm = fedcef(local_lr=0.03, participation=participation)
    simulation = Simulation(problem, algorithm, batch_size=0, clients_per_round=clients_per_round)
    for _ in range(rounds):
        simulation.step()
    assert Evaluator(problem, algorithm.step)(simulation.model())["stationarity"] <= 1e-16


def test_methods_that_need_everyone_say_so():
    with pytest.raises(ConfigError, match="Zhang needs all clients in every round"):
        Simulation(PROBLEM, Zhang(**COMMON), clients_per_round=3)
    with pytest.raises(ConfigError, match="must be between 1 and num_clients = 6"):
        Simulation(PROBLEM, fedcef(), clients_per_round=7)


def test_clients_can_be_weighted_by_their_samples():
    rows = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    assert torch.allclose(mean_of(Dense(rows).rows()), rows.mean(0))
    weights = torch.tensor([1.0, 1.0, 2.0])
    assert torch.allclose(mean_of(Dense(rows).rows(), weights), torch.tensor([1.75, 2.0]))
    plain, weighted = (
        run(PROBLEM, FedAvg(**COMMON), rounds=3, weighting=w, batch_size=0).records[-1]["objective"]
        for w in ("uniform", "samples")
    )
    assert plain == pytest.approx(weighted)  # all clients here have equally many samples


def test_clipping_bounds_what_a_round_can_move():
    simulation = Simulation(PROBLEM, FedAvg(local_lr=0.1, local_steps=2), clip_norm=0.5, batch_size=5)
    simulation.step()
    assert float((simulation.model() - PROBLEM.z0).norm()) <= 0.1 * 2 * 0.5 + 1e-12


def test_history_from_python():
    history = run(PROBLEM, fedcef(), rounds=25, eval_every=10, batch_size=0)
    assert [record["round"] for record in history.records] == [0, 10, 20, 25]
    assert history["objective"][-1] < history["objective"][0]
    assert history["f1"][-1] <= 1
    assert history.parameters["weight"].shape == (20,)


def test_python_users_get_the_same_checks_as_files():
    for algorithm, says in (
        (FedCEF(local_lr=-1.0), "local_lr is -1.0; it must be greater than 0."),
        (FedCEF(mixing=2.0), "mixing is 2.0; it must be less than or equal to 1."),
        (FedCEF(regularizer=L1(0.5)), "The regulariser belongs to the problem"),
        (Zhang(compressor=TopK(ratio=0.1)), "no place for a compressor"),
    ):
        with pytest.raises(ConfigError, match=says):
            run(PROBLEM, algorithm, rounds=1)
    with pytest.raises(ConfigError, match=r"eval.every is 0; it must be greater than or equal to 1."):
        run(PROBLEM, fedcef(), rounds=1, eval_every=0)


def test_weights_by_samples_need_everyone_or_stateless_clients():
    with pytest.raises(ConfigError, match="all clients count alike"):
        Simulation(PROBLEM, fedcef(), weighting="samples", clients_per_round=2)
    Simulation(PROBLEM, FedAvg(**COMMON), weighting="samples", clients_per_round=2).step()
