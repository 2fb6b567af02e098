"""Chunks of a cohort: the same bits as the whole, for every method and both oracles."""

import pytest
import torch

from fedcef.algorithms import ALGORITHMS, FedAvg, FedCEF
from fedcef.compressors import COMPRESSORS, TopK
from fedcef.core.errors import ConfigError
from fedcef.problems.problem import Problem
from fedcef.regularizers import L1
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.stores import Touched
from fedcef.simulation.workers import Chunked
from fedcef.simulation.workers.stacks import Added, joined
from fedcef.wire import Dense
from fedcef.wire.forms.relay import Rows


def problem(features: int = 6, hidden: int = 5) -> Problem:
    draw = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(features, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 3))
    clients = [(torch.randn(12, features, generator=draw), torch.randint(3, (12,), generator=draw)) for _ in range(11)]
    return Problem.build(model, torch.nn.functional.cross_entropy, clients, regularizer=L1(1e-3))


PROBLEM = problem()


def method(name, problem=PROBLEM, **options):
    kind = ALGORITHMS[name]
    compressor = {"compressor": TopK(ratio=0.2)} if kind.compresses else {}
    return kind(local_lr=0.05, local_steps=3, regularizer=problem.regularizer, **{**compressor, **options})


def played(algorithm, chunk, rounds=2, problem=PROBLEM, **options):
    cohort = 7 if algorithm.partial_participation else 0
    common = {"batch_size": 4, "clip_norm": 1.0, "clients_per_round": cohort, "cohort_chunk": chunk}
    simulation = Simulation(problem, algorithm, **{**common, **options})
    for _ in range(rounds):
        simulation.step()
    return simulation


def assert_same(one, other):
    mine, theirs = one.parts(), other.parts()
    assert mine.keys() == theirs.keys()
    for part, state in mine.items():
        assert state.keys() == theirs[part].keys()
        for name, tensor in state.items():
            assert torch.equal(tensor, theirs[part][name]), (part, name)
    assert one.ledger.totals() == other.ledger.totals()
    assert bool(one.state.finite) == bool(other.state.finite)


@pytest.mark.parametrize("oracle", ["loop", "stacked"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_chunks_give_the_bits_of_the_whole(name, oracle):
    """Seven clients by threes: the last one is alone in its chunk."""
    assert_same(*(played(method(name), chunk, oracle=oracle) for chunk in (0, 3)))


@pytest.mark.parametrize("name", sorted(COMPRESSORS.keys() - {"auto"}))
def test_whatever_the_compressor(name):
    compressor = COMPRESSORS[name]().fit(PROBLEM.layout)
    whole, parts = (played(method("fedcef", compressor=compressor), chunk) for chunk in (0, 3))
    assert_same(whole, parts)


@pytest.mark.parametrize("name", ["tamuna", "compressed_scaffnew"])
def test_what_depends_on_a_place_in_the_cohort(name):
    whole, parts = (played(method(name, senders=3), chunk) for chunk in (0, 3))
    assert_same(whole, parts)


def test_long_vectors_for_which_torch_uses_all_its_threads():
    large, before = problem(64, 1500), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        whole, *parts = (played(method("fedcef", large), size, 1, large, oracle="loop") for size in (0, 3))
    finally:
        torch.set_num_threads(before)
    for other in parts:
        assert_same(whole, other)


def test_weights_count_as_they_do_in_the_whole():
    options = {"weights": torch.arange(1.0, 12.0)}
    assert_same(played(method("fedavg"), 0, **options), played(method("fedavg"), 2, **options))


def test_a_store_that_is_written_in_place():
    whole, parts = (played(method("scaffold"), chunk, client_states=Touched) for chunk in (0, 2))
    assert_same(whole, parts)


def test_no_table_of_the_cohort_is_made():
    """Neither states nor dense messages: every table has the rows of a chunk."""

    class Watched(Touched):
        def take(self, clients):
            sizes.append(len(clients))
            return super().take(clients)

        def put(self, clients, rows):
            sizes.append(len(clients))
            after = super().put(clients, rows)
            after.__class__ = Watched
            return after

    sizes: list[int] = []
    simulation = Simulation(PROBLEM, method("scaffold"), batch_size=4, cohort_chunk=2, client_states=Watched)
    up, proposed = simulation.engine.workers.work(simulation.engine, simulation.state, simulation.engine.rounds.at(0))
    proposed.commit(lambda rows: rows)
    assert max(sizes) == 2
    assert all(isinstance(payload, Added) for payload in up.values())
    with pytest.raises(ConfigError, match="only the sum was kept"):
        up["dx"].rows() if "dx" in up else next(iter(up.values())).rows()


def test_stacks_are_joined_in_their_own_form_or_as_a_list():
    a, b = Dense(torch.randn(2, 5)), Dense(torch.randn(3, 5))
    assert torch.equal(joined([a, b]).values, torch.cat([a.values, b.values]))
    half = Dense(torch.randn(1, 5).half())
    mixed = joined([a, half])
    assert isinstance(mixed, Rows)
    assert torch.equal(mixed.dense(), torch.cat([a.dense(), half.dense()]))


def test_what_needs_the_whole_cohort_says_so():
    auto = FedCEF(local_lr=0.05, compressor=COMPRESSORS["auto"](), regularizer=PROBLEM.regularizer)
    with pytest.raises(ConfigError, match="compressor auto looks at all vectors"):
        Simulation(PROBLEM, auto, budget="1MB", cohort_chunk=2)
    with pytest.raises(ConfigError, match="simulated network computes its cohorts whole"):
        Simulation(PROBLEM, FedAvg(), network={}, cohort_chunk=2)
    assert isinstance(Simulation(PROBLEM, FedAvg(), cohort_chunk=2).engine.workers, Chunked)
