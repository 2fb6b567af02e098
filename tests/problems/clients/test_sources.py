"""Runs on clients that are read when they are needed: the bits of the same samples in one table, nobody else read."""

import pickle

import pytest
import torch

from fedcef import FedAvg, FedCEF, TopK, clients, run
from fedcef.problems.client_data import PooledData
from fedcef.simulation.simulation import Simulation

from .sources import KNOWN, SOURCES, from_function, problem, tables

METHODS = {
    "fedcef": FedCEF(local_lr=0.1, local_steps=3, compressor=TopK(ratio=0.3)),
    "fedavg": FedAvg(local_lr=0.1, local_steps=2),
}


def records(history):
    return [{key: value for key, value in record.items() if key != "wall_s"} for record in history.records]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("equal", [False, True], ids=["unequal", "equal"])
def test_samples_sizes_and_batches(name, equal, tmp_path):
    shards = tables(equal=equal)
    data, pooled = (
        SOURCES[name](shards, tmp_path),
        PooledData.of([problem(shards).client_samples(i) for i in range(12)]),
    )
    who = torch.tensor([1, 5, 6, 11])
    rows = torch.tensor([[[0, 2, 2]], [[1, 1, 0]], [[2, 0, 1]], [[0, 0, 0]]]).expand(-1, 2, -1)
    assert data.num_clients == 12
    assert data.sizes_of(who).tolist() == [len(shards[i][0]) for i in who.tolist()]
    assert data.sizes.tolist() == pooled.sizes.tolist()
    assert data.equal_sizes == (equal and name in KNOWN)
    for client in who.tolist():
        for count in (None, 2, 100):
            same(data.samples(client, count), pooled.samples(client, count))
    same(data.batches(who, rows)(1), pooled.batches(who, rows)(1))
    many = rows.repeat(1, 1, 5)  # more than a client has
    same(data.batches(who, many)(0), pooled.batches(who, many)(0))
    if equal:
        same(data.tables(who), pooled.tables(who))
    assert data.example.dtypes == pooled.example.dtypes


def same(found, expected):
    assert torch.equal(found.inputs, expected.inputs)
    assert torch.equal(found.targets, expected.targets)
    assert found.dtypes == expected.dtypes


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch_size", [0, 2])
def test_a_run_has_the_bits_of_the_pooled_problem(name, method, batch_size, tmp_path):
    """Equal sizes where they are known beforehand: then full batches are computed together, as with one table."""
    shards = tables(equal=name in KNOWN)
    options = {"rounds": 2, "eval_every": 1, "batch_size": batch_size, "clients_per_round": 4, "seed": 2}
    expected = run(problem(shards), METHODS[method], **options)
    found = run(problem(SOURCES[name](shards, tmp_path)), METHODS[method], **options)
    assert records(found) == records(expected)
    assert all(torch.equal(found.parameters[key], expected.parameters[key]) for key in expected.parameters)


@pytest.mark.parametrize("name", ["npz", "data set", "arrays"])
def test_another_floating_type(name, tmp_path):
    shards = tables()
    options = {"rounds": 2, "batch_size": 2, "clients_per_round": 4, "precision": "float64"}
    expected, found = (
        run(problem(data), METHODS["fedcef"], **options) for data in (shards, SOURCES[name](shards, tmp_path))
    )
    assert records(found) == records(expected)
    assert {p.dtype for p in found.parameters.values()} == {torch.float64}


@pytest.mark.parametrize("batch_size", [0, 2])
def test_a_round_reads_its_cohort(batch_size):
    shards, read = tables(), []

    def load(client):
        read.append(client)
        return shards[client]

    task = problem(clients.from_function(load, len(shards)))
    assert set(read) == {0}  # tried out
    simulation = Simulation(task, METHODS["fedavg"], batch_size=batch_size, clients_per_round=3)
    read.clear()
    simulation.step()
    cohort = set(simulation.engine.rounds.cohort(0).tolist())
    following = set(simulation.engine.rounds.cohort(1).tolist())  # a thread may read those ahead
    assert cohort - {0} <= set(read) <= cohort | following
    assert len(read) == len(set(read))


def test_some_of_the_clients():
    shards = tables()
    for data in (from_function(shards, None), problem(shards).data):
        some = data.only([7, 2])
        assert some.num_clients == 2
        assert some.sizes.tolist() == [len(shards[7][0]), len(shards[2][0])]
        assert torch.equal(some.samples(1).inputs, shards[2][0])
        assert data.only(None) is data
        assert data.only([]).num_clients == 0


def test_a_source_can_be_sent_to_another_process(tmp_path):
    data = SOURCES["arrays"](tables(), tmp_path)
    same(pickle.loads(pickle.dumps(data)).samples(3), data.samples(3))
