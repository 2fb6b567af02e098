"""A budget of bytes: what a round may cost, which level it takes, and that the bytes last to the end."""

from dataclasses import replace

import pytest
import torch

from fedcef.algorithms import EF21, SCAFCOM, FedCEF, FedPAQ, Qsparse, Zhang
from fedcef.compressors import Identity, LayerwiseTopK, RandK, ScaledSign, TopK
from fedcef.core.errors import ConfigError
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.simulation.budget import Budget, ladder
from fedcef.simulation.capture import Captured, Memory
from fedcef.simulation.simulation import Simulation

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
H = L1(0.01)
PROBLEM = lasso(H, num_clients=6, samples=30, dim=2000, support=50)
ROUNDS = 30


def method(**options):
    return FedCEF(**{"local_lr": 1e-3, "local_steps": 2, "regularizer": H, "compressor": TopK(ratio=0.05), **options})


def lossy(values="uniform4", **options):
    return method(
        downlink="lossy",
        compressor=TopK(ratio=0.05, values=values),
        down_compressor=TopK(ratio=0.2, values=values),
        **options,
    )


def sent_by(algorithm, rounds=ROUNDS, problem=PROBLEM, **options):
    simulation = Simulation(problem, algorithm, batch_size=5, oracle="stacked", rounds=ROUNDS, **options)
    for _ in range(rounds):
        simulation.step()
    return simulation


def test_shares_add_up_to_the_budget_and_tilt_moves_them():
    for tilt in (-1.0, 0.0, 0.5, 1.0):
        budget, left, shares = Budget(1000, 10, tilt), 1000, []
        for t in range(10):
            shares.append(budget.share(t, left))
            left -= shares[-1]
        assert sum(shares) == pytest.approx(1000)
        assert shares[0] == pytest.approx(100 * (1 + 0.9 * tilt))
        assert sorted(shares, reverse=tilt > 0) == pytest.approx(shares)


def test_levels_are_powers_of_the_root_of_two_and_all_different():
    levels = ladder(lossy(), 2000)
    assert [level.up_ratio for level in levels] == sorted(level.up_ratio for level in levels)
    assert any(level.up_ratio == 0.05 and level.down_ratio == 0.2 for level in levels)
    assert levels[-1].up_ratio == 0.05 * 16
    assert levels[-1].down_ratio == 1.0
    assert len(ladder(method(compressor=TopK(ratio=1.0)), 2000)) == 9  # nothing above everything
    assert len(ladder(method(compressor=TopK(ratio=0.001)), 200)) < 10  # of 200 entries at least one is kept
    assert all(level.down_ratio is None for level in ladder(method(), 2000))


@pytest.mark.parametrize(
    "algorithm",
    [
        method(compressor=Identity()),
        method(compressor=ScaledSign()),
        method(downlink="lossy", down_compressor=ScaledSign()),
        Zhang(local_lr=0.1, regularizer=H),
    ],
    ids=["identity", "signs", "signs down", "zhang"],
)
def test_what_has_no_ratio_is_refused(algorithm):
    with pytest.raises(ConfigError, match="with compressors that have a ratio"):
        Simulation(PROBLEM, algorithm, budget=10**6)


@pytest.mark.parametrize(
    "algorithm",
    [
        method(),
        method(compressor=TopK(ratio=0.05, values="uniform4")),
        lossy(),
        method(compressor=RandK(ratio=0.05)),
        method(compressor=LayerwiseTopK(ratio=0.05)),
    ],
    ids=["increment", "relay", "lossy", "randk", "layerwise"],
)
def test_the_bytes_last_to_the_end(algorithm):
    free = sent_by(algorithm).ledger.sent()
    for factor in (0.3, 0.6, 1.0, 2.5):
        total = int(factor * free)
        assert 0.9 * total <= sent_by(algorithm, budget=total).ledger.sent() <= total


@pytest.mark.parametrize("tilt", [-0.8, 0.8])
def test_tilted_budgets_last_too(tilt):
    total = sent_by(lossy()).ledger.sent()
    assert 0.9 * total <= sent_by(lossy(), budget=total, budget_tilt=tilt).ledger.sent() <= total


def test_some_of_the_clients_in_each_round():
    total = sent_by(lossy(), clients_per_round=2).ledger.sent()
    simulation = sent_by(lossy(), clients_per_round=2, budget=total)
    # a client that was away gets what it missed, however little its own round sends
    assert 0.9 * total <= simulation.ledger.sent() <= 1.01 * total


def test_a_budget_below_the_lowest_level_is_exceeded_by_that_alone_and_said_once():
    simulation, notes = Simulation(PROBLEM, method(), batch_size=5, oracle="stacked", rounds=ROUNDS, budget=5000), []
    for _ in range(ROUNDS):
        simulation.step()
        notes += simulation.notes()
    assert simulation.ratios()["up_ratio"] == 0.05 / 16
    assert sum("went beyond the budget of 5,000 bytes" in note for note in notes) == 1


def test_a_round_that_costs_too_much_is_done_again_lower():
    total = sent_by(method(), rounds=3).ledger.sent()
    simulation = Simulation(PROBLEM, method(), batch_size=5, oracle="stacked", budget=total, rounds=3)
    hopeful = torch.arange(1, 1 + len(simulation.spender.levels))  # costs that are far too low
    parts = simulation.parts()
    simulation.restore(0, {**parts, "budget": {**parts["budget"], "rehearsed": hopeful}})
    for _ in range(3):
        simulation.step()
    assert simulation.ledger.sent() <= total
    assert simulation.round == 3


def test_a_level_is_the_fixed_ratio():
    """A round that a budget plays at a level is the round of an algorithm with that ratio."""
    total = sent_by(method(), rounds=1).ledger.sent()
    spent = Simulation(PROBLEM, method(), batch_size=5, oracle="stacked", budget=total, rounds=1)
    spent.step()
    fixed = sent_by(method(compressor=TopK(ratio=spent.ratios()["up_ratio"])), rounds=1)
    assert torch.equal(spent.model(), fixed.model())
    assert spent.ledger.totals() == fixed.ledger.totals()


def test_restored_in_the_middle_it_goes_on_the_same():
    total = int(0.7 * sent_by(lossy()).ledger.sent())
    whole = sent_by(lossy(), budget=total)
    half = sent_by(lossy(), rounds=ROUNDS // 2, budget=total)
    other = Simulation(PROBLEM, lossy(), batch_size=5, oracle="stacked", budget=total, rounds=ROUNDS)
    other.restore(half.round, half.parts())
    for _ in range(ROUNDS - ROUNDS // 2):
        other.step()
    assert torch.equal(other.model(), whole.model())
    assert other.ledger.totals() == whole.ledger.totals()
    assert other.state.spending == whole.state.spending


class HostMemory(Memory):
    """Memory on a host, which has no streams."""

    def __init__(self):
        self.number, self.pool, self._state = torch.zeros((), dtype=torch.int64), None, None


class InPlace(Captured):
    """Recordings as a CPU can have them: done again, with the new states put where the old ones were."""

    def _record(self):
        class Graph:
            replay = staticmethod(self._play_in_place)

        return Graph(), {}

    def _play_in_place(self):
        after, _ = self._play(self._memory.state, self._memory.number)
        new = {name: tensor.clone() for name, tensor in after.tensors().items()}
        for name, buffer in self._memory.state.tensors().items():
            buffer.copy_(new[name])


def test_levels_work_on_the_same_memory():
    total = int(0.6 * sent_by(lossy()).ledger.sent())
    options = {"budget": total, "budget_tilt": 0.8, "rounds": ROUNDS}
    eager, recorded = (Simulation(PROBLEM, lossy(), batch_size=5, oracle="stacked", **options) for _ in range(2))
    memory = HostMemory()
    levels = [InPlace(play, memory) for play in recorded.spender.plays]
    recorded._play = replace(recorded.spender, plays=levels, overwrites=True).play
    for _ in range(ROUNDS):
        eager.step()
        recorded.step()
    assert sum(level.is_recorded for level in levels) >= 2
    assert torch.equal(eager.model(), recorded.model())
    assert eager.ledger.totals() == recorded.ledger.totals()


def test_a_budget_works_for_any_method_that_compresses():
    for kind in (SCAFCOM, EF21, Qsparse, FedPAQ):
        algorithm = kind(local_lr=1e-3, local_steps=2, regularizer=H, compressor=TopK(ratio=0.05))
        free = sent_by(algorithm).ledger.totals()
        total = free["wire_down_bytes"] + free["wire_up_bytes"] // 2
        assert sent_by(algorithm, budget=total).ledger.sent() <= total


@needs_cuda
@pytest.mark.parametrize("algorithm", [method(), lossy()], ids=["increment", "lossy"])
def test_recordings_of_several_levels_share_their_states(algorithm):
    problem = PROBLEM.to("cuda")
    total = int(0.6 * sent_by(algorithm, problem=problem).ledger.sent())
    budget = {"budget": total, "budget_tilt": 0.8, "problem": problem}
    eager, captured = (sent_by(algorithm, cuda_graphs=graphs, **budget) for graphs in (False, True))
    assert sum(play.is_recorded for play in captured.spender.plays) >= 2
    assert torch.equal(eager.model(), captured.model())
    assert eager.ledger.totals() == captured.ledger.totals()
    assert 0.9 * total <= captured.ledger.sent() <= total
