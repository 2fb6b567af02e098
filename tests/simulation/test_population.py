"""Very many clients: nothing in a round looks at each of them, and what is counted stays the same."""

import pytest
import torch

from fedcef.algorithms import FedAvg, FedCEF
from fedcef.compressors import Auto, TopK
from fedcef.core import rng
from fedcef.core.round import POPULATION, Rounds, draw_cohort
from fedcef.core.training import Training
from fedcef.problems.clients.drawn import drawn
from fedcef.problems.problem import Problem
from fedcef.simulation.budget import Budget
from fedcef.simulation.client_states import Table
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.ledger import Ledger, Sizes
from fedcef.simulation.marks import Marks
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.snapshots import whole
from fedcef.simulation.stores import Touched
from fedcef.wire import frame_nbytes

MANY = 1_000_000


def problem(num_clients=MANY):
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(60, 6, generator=generator), torch.arange(60) % 3
    torch.manual_seed(0)
    clients = drawn(inputs, targets, num_clients, size=8)
    return Problem.build(torch.nn.Linear(6, 3), torch.nn.functional.cross_entropy, clients, test=(inputs, targets))


@pytest.mark.parametrize("size", [1, 7, 100, 20_000])
def test_cohorts_are_distinct_ascending_and_repeatable(size):
    keys = [rng.fold(rng.seed_key(3), t) for t in range(3)]
    for key in keys:
        cohort = draw_cohort(key, MANY, size)
        assert len(cohort) == size
        assert bool((cohort.diff() > 0).all())
        assert 0 <= int(cohort[0]) <= int(cohort[-1]) < MANY
        assert torch.equal(cohort, draw_cohort(key, MANY, size))
    assert not torch.equal(*(draw_cohort(key, MANY, size) for key in keys[:2]))


def test_everyone_is_drawn_alike():
    """Of 2,000 cohorts of 100 out of 20,000, each of 20 stretches gets a twentieth: chi-square, 19 degrees."""
    keys = [rng.fold(rng.seed_key(9), t) for t in range(2000)]
    counts = torch.cat([draw_cohort(key, 20_000, 100) for key in keys]).div(1000, rounding_mode="floor").bincount()
    expected = 2000 * 100 / 20
    assert float(((counts - expected) ** 2 / expected).sum()) < 43.8  # one in a thousand


def test_small_populations_are_drawn_as_they_always_were():
    key = rng.seed_key(1)
    assert torch.equal(draw_cohort(key, POPULATION, 10), rng.subset(key, POPULATION, 10))


@pytest.mark.parametrize(
    ("compressor", "options"),
    [
        (TopK(ratio=0.2), {}),
        (TopK(ratio=0.2), {"budget": 5000}),
        (Auto(), {"budget": 5000}),
        (Auto(target=0.9), {}),
    ],
    ids=["plain", "budget", "auto", "target"],
)
def test_a_round_looks_at_no_one_else(compressor, options):
    """Whatever has an entry for every client must not be made anew in a round, not in one that chooses either."""
    method = FedCEF(local_lr=0.1, compressor=compressor)
    simulation = Simulation(problem(), method, clients_per_round=5, rounds=12, **options)
    simulation.step()
    made = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, torch.Tensor) and tensor.numel() >= MANY and not tensor._is_view():
                    made.append(function)
            return result

    with Watch():
        for _ in range(4 if options or isinstance(compressor, Auto) else 1):
            simulation.step()
    written_in_place = {f for f in made if str(f).split(".")[1].endswith("_")}
    assert not set(made) - written_in_place
    assert bool(simulation.chosen()) == isinstance(compressor, Auto)


@pytest.mark.parametrize("kind", [FedCEF, FedAvg])
def test_the_ledger_counts_as_one_with_a_table(kind, monkeypatch):
    options = {"local_lr": 0.1, "local_steps": 2, **({"compressor": TopK(ratio=0.2)} if kind is FedCEF else {})}
    training = Training(clients_per_round=2500, batch_size=4, rounds=6)
    sparse = Simulation(problem(20_000), kind(**options), training)
    assert isinstance(sparse.state.ledger.wire.marks.numbers, Touched)
    monkeypatch.setattr(Marks, "start", classmethod(lambda cls, n, device: cls(_table(n), n)))
    dense = Simulation(problem(20_000), kind(**options), training)
    assert isinstance(dense.state.ledger.wire.marks.numbers, Table)
    for _ in range(6):
        sparse.step()
        dense.step()
    assert sparse.ledger.totals() == dense.ledger.totals()
    assert torch.equal(sparse.ledger.wire.have, dense.ledger.wire.have)
    assert 0 < int((sparse.ledger.wire.have > 0).sum()) < 20_000


def _table(num_clients):
    return Table.start({"have": torch.zeros((), dtype=torch.int64)}, num_clients)


class EveryoneAsked(Budget):
    """Charges by going through all clients, as it was written first."""

    def charged(self, state, played):
        column, reach = state.ledger.wire, self.reach(played)
        missed = (column.log - column.have).clamp(max=int(frame_nbytes(whole(state.replica)))).double()
        return state.ledger.sent() + round(
            float(reach * missed.sum() + 2 * (reach * (1 - reach)) ** 0.5 * missed.norm())
        )


@pytest.mark.parametrize("network", [None, {"preset": "lte", "deadline": 1.0, "over_selection": 1.2}])
def test_a_run_that_chooses_is_charged_as_if_everyone_was_asked(network, monkeypatch):
    """Side by side over random cohorts, some of which come back: the same state and spending after every round."""
    some = problem(20_000)
    options = {"clients_per_round": 800, "rounds": 16, "batch_size": 4, "budget": 9_000_000, "network": network}
    runs = []
    for kind in (Budget, EveryoneAsked):
        monkeypatch.setattr("fedcef.simulation.choosing.Budget", kind)
        runs.append(Simulation(some, FedCEF(local_lr=0.1, compressor=Auto()), **options))
    new, old = runs
    for t in range(16):
        new.step()
        old.step()
        assert new.state.spending == old.state.spending
        budgets = [kind(10**9, 16, away=0.96) for kind in (Budget, EveryoneAsked)]
        assert len({budget.charged(new.state, t + 1) for budget in budgets}) == 1
    assert new.chosen()
    assert torch.equal(new.model(), old.model())
    assert new.ledger.totals() == old.ledger.totals()


def test_sums_by_place_are_those_over_everyone():
    """Bit for bit, along a log with steps of any length, with clients told twice, and after a snapshot."""
    random = torch.Generator().manual_seed(0)
    ledger = Ledger.empty(20_000, torch.device("cpu"))
    column = ledger.wire
    for t in range(60):
        up, down, entire, without_zeros = torch.randint(1, 4000, (4,), generator=random)
        sizes = Sizes(up.view(1), down, entire, without_zeros)
        listeners = draw_cohort(rng.fold(rng.seed_key(5), t), 20_000, 700 if t % 9 else 0)
        told = draw_cohort(rng.fold(rng.seed_key(6), t), 20_000, 300) if t % 3 == 0 else None
        column = column.add(sizes, listeners, told)
        column = column.with_tensors(column.tensors()) if t % 13 == 5 else column
        assert int(column.marks.tally.clients.sum()) == 20_000
        for most in (1, 5000, 40_000, 10**9):
            missed = (column.log - column.have).clamp(max=most).double()
            total, norm = column.marks.missed(column.log, most)
            assert torch.equal(total, missed.sum())
            assert torch.equal(norm, missed.norm())


def test_a_snapshot_of_marks_holds_those_that_moved():
    simulation = Simulation(problem(), FedAvg(local_lr=0.1), clients_per_round=5, rounds=6)
    whole = Simulation(problem(), FedAvg(local_lr=0.1), clients_per_round=5, rounds=6)
    for _ in range(3):
        simulation.step()
    parts = simulation.parts()
    assert all(tensor.numel() <= 4 * 5 for tensor in parts["ledger"].values())
    other = Simulation(problem(), FedAvg(local_lr=0.1), clients_per_round=5, rounds=6)
    other.restore(3, parts)
    for _ in range(3):
        other.step()
    for _ in range(6):
        whole.step()
    assert other.ledger.totals() == whole.ledger.totals()


def test_the_loss_is_taken_over_a_thousand_clients_or_as_many_as_asked():
    many = problem()
    by_default, few = Evaluator(many, 0.1), Evaluator(many, 0.1, clients=50)
    x = many.z0 + 0.1
    assert by_default._rows == 1000
    assert few._rows == 50
    alone = torch.stack([many.loss(many.outputs(many.model, x, s.inputs), s.targets) for s in _samples(many, 50)])
    torch.testing.assert_close(few.loss(x), alone.mean(), rtol=1e-5, atol=0)


def _samples(many, count):
    clients = draw_cohort(rng.fixed_key(), MANY, count).tolist()
    return [many.client_samples(client) for client in clients]


def test_fewer_clients_are_all_looked_at():
    small = problem(40)
    assert Evaluator(small, 0.1)._rows == 40
    assert Evaluator(small, 0.1, clients=10)._rows == 10
    assert Rounds(Training(), 40).is_population is False
