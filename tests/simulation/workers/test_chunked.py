"""Chunks of a cohort: the same bits as the whole, for every method and both oracles."""

from dataclasses import replace

import pytest
import torch

from fedcef.algorithms import ALGORITHMS, FedAvg, FedCEF
from fedcef.compressors import COMPRESSORS, TopK
from fedcef.core.errors import ConfigError
from fedcef.core.round import rehearsal_key
from fedcef.problems.problem import Problem
from fedcef.regularizers import L1
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.stores import Touched
from fedcef.simulation.workers import Chunked
from fedcef.simulation.workers.stacks import Added, joined, some_of
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


CLOCK = {"preset": "3g"}
LATE = {"preset": "3g", "deadline": 0.4, "over_selection": 1.4, "at_least": 2}
SILENT = {"preset": "lte", "deadline": 0.5, "availability": 0.6, "unavailable": "silent"}


@pytest.mark.parametrize("store", ["table", "memory", "disk"])
@pytest.mark.parametrize("network", [CLOCK, LATE, SILENT], ids=["clock", "late", "silent"])
@pytest.mark.parametrize("name", ["fedcef", "fedavg", "scaffold"])
def test_chunks_on_a_network_give_the_bits_of_the_whole(name, network, store):
    """Messages, states, the clock and who is asked next, also where some come too late."""
    options = {"clients_per_round": 5, "network": network, "store": store}
    whole, parts = (played(method(name), chunk, rounds=5, **options) for chunk in (0, 2))
    assert whole.clock() == parts.clock()
    if store == "disk":  # of which a snapshot holds the length of the file, and some were written again
        whole, parts = (replace_states(run) for run in (whole, parts))
    assert_same(whole, parts)
    if network is LATE:
        assert whole.clock()["arrivals"] < 7 == len(whole.state.clock.asked)


def replace_states(run):
    clients = Touched.start(run.algorithm.client_init(run.problem.z0), run.problem.num_clients)
    everyone = torch.arange(run.problem.num_clients)
    state = replace(run.state, clients=clients.put(everyone, run.state.clients.take(everyone)))
    run._at = (run.round, state)
    return run


@pytest.mark.parametrize("name", sorted(COMPRESSORS.keys() - {"auto"}))
def test_some_of_a_stack_are_its_rows(name):
    stack = (
        COMPRESSORS[name]()
        .fit(PROBLEM.layout)
        .compress(
            torch.randn(7, PROBLEM.dim, generator=torch.Generator().manual_seed(0)), rehearsal_key(torch.arange(7))
        )
    )
    rows = torch.tensor([0, 2, 3, 6])
    some, single = some_of(stack, rows), Rows(tuple(stack.rows()[row] for row in rows))
    assert some.lead == single.lead
    assert type(some) is type(stack)
    for measure in ("dense", "nbytes", "paper_nbytes", "total"):
        assert torch.equal(getattr(some, measure)(), getattr(single, measure)())
    assert [row.encode() for row in some.rows()] == [row.encode() for row in single.rows()]
    assert torch.equal(some_of(single, torch.tensor([1, 3])).dense(), single.dense()[[1, 3]])


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
    with pytest.raises(ConfigError, match="no cohorts to split; leave cohort_chunk"):
        Simulation(PROBLEM, FedAvg(), network={"mode": "async"}, cohort_chunk=2)
    assert isinstance(Simulation(PROBLEM, FedAvg(), cohort_chunk=2).engine.workers, Chunked)
