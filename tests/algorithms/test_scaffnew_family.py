"""Scaffnew, CompressedScaffnew, TAMUNA, FedComLoc and LoCoDL: what they are of one another, by hand and in bytes."""

from itertools import islice

import numpy as np
import pytest
import torch

from fedcef.algorithms import (
    SCAFFOLD,
    TAMUNA,
    CompressedScaffnew,
    FedCOMGATE,
    FedComLoc,
    LoCoDL,
    Scaffnew,
)
from fedcef.algorithms.shared_columns import columns_of, entries_of, put_back, taken
from fedcef.compressors import TopK
from fedcef.core.errors import ConfigError
from fedcef.core.rng import round_key
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1, Zero
from fedcef.simulation.simulation import Simulation
from fedcef.wire import FrameKind, decode, encode, frame_nbytes

from .scaffnew_setting import LONG, PROBLEM, H, K, N, play_told
from .setting import Quadratics, deploy, participants, received, simulate


def same(ours, theirs, rounds=40, problem=PROBLEM):
    a, b = (simulate(algorithm, problem, rounds).points for algorithm in (ours, theirs))
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-12)


# Which entries are sent


def table_by_hand(dim, senders, size):
    """The authors' way: the ones are dealt out to the columns in turn."""
    table, column = np.zeros((dim, size), int), 0
    for entry in range(dim):
        for _ in range(senders):
            table[entry, column] = 1
            column = (column + 1) % size
    return table


@pytest.mark.parametrize(
    ("dim", "senders", "size"), [(20, 2, 6), (20, 3, 7), (7, 4, 5), (2, 2, 7), (5, 5, 5), (3, 2, 3)]
)
def test_every_entry_is_sent_by_as_many_clients(dim, senders, size):
    entries = entries_of(torch.arange(size), dim, senders, size)
    assert entries.shape == (size, -(-dim * senders // size))
    found = put_back(torch.ones_like(entries), entries, dim).T.numpy()
    np.testing.assert_array_equal(found, table_by_hand(dim, senders, size))
    x = torch.randn(size, dim)
    torch.testing.assert_close(put_back(taken(x, entries), entries, dim), x * torch.from_numpy(found.T))


def test_columns_are_dealt_anew_in_every_round():
    columns = [tuple(columns_of(round_key(0, t, torch.arange(5))).tolist()) for t in range(40)]
    assert all(sorted(found) == list(range(5)) for found in columns)
    assert len(set(columns)) > 30
    assert {found[0] for found in columns} == set(range(5))


# Rounds by hand, with columns and cohorts


def by_hand_tamuna(problem, cohorts, columns, senders, alpha, steps, lam):
    """With the paper's letters; the prox is ours."""
    a, b, z = problem.a.numpy(), problem.b.numpy(), problem.z0.numpy().copy()
    n, dim = b.shape
    h, h_mean, beta = np.zeros((n, dim)), np.zeros(dim), alpha * steps
    for cohort, places in zip(cohorts, columns, strict=True):
        size = len(cohort)
        q, x = table_by_hand(dim, senders, size)[:, places].T, np.tile(z, (size, 1))
        for _ in range(steps):
            x = x - alpha * (np.einsum("ijk,ik->ij", a[cohort], x) - b[cohort]) + alpha * h[cohort]
        x_bar = (q * x).sum(0) / senders
        z = x_bar - beta * h_mean
        z = np.sign(z) * np.maximum(np.abs(z) - beta * lam, 0)
        eta = size * (senders - 1) / (senders * (size - 1)) / steps
        h[cohort] += eta / alpha * q * (z - x)
        h_mean = h.mean(0)
    return z, h


@pytest.mark.parametrize(("size", "senders"), [(6, 2), (6, 5), (4, 2), (3, 3), (2, 2)])
@pytest.mark.parametrize("rounds", [1, 2, 6])
def test_rounds_with_columns_are_those_done_by_hand(size, senders, rounds):
    tamuna = TAMUNA(**LONG, senders=senders, regularizer=H)
    drawn = [participants(N, size, t) for t in range(rounds)]
    cohorts, columns = [c.numpy() for c, _ in drawn], [columns_of(key).numpy() for _, key in drawn]
    z, h = by_hand_tamuna(PROBLEM, cohorts, columns, senders, LONG["local_lr"], K, 0.1)
    *_, (replica, clients, server) = islice(play_told(tamuna, PROBLEM, size), rounds)
    np.testing.assert_allclose(replica["z"].numpy(), z, rtol=0, atol=1e-13)
    np.testing.assert_allclose(clients["h_i"].numpy(), h, rtol=0, atol=1e-12)
    np.testing.assert_allclose(server["h"].numpy(), h.mean(0), rtol=0, atol=1e-12)
    if size == N:  # where the next round tells them
        for method in (tamuna, CompressedScaffnew(**LONG, senders=senders, regularizer=H)):
            np.testing.assert_allclose(simulate(method, PROBLEM, rounds).points[-1].numpy(), z, rtol=0, atol=1e-13)


# What they are of one another


@pytest.mark.parametrize("server_lr", [1.0, 1.5])
def test_scaffnew_with_as_many_steps_in_each_round_is_scaffold(server_lr):
    ours = Scaffnew(**LONG, server_lr=server_lr)
    same(ours, SCAFFOLD(**LONG, server_lr=server_lr))
    same(ours, FedCOMGATE(**LONG, server_lr=server_lr))


@pytest.mark.parametrize("probability", [0.0, 0.3])
@pytest.mark.parametrize("h", [Zero(), H], ids=["smooth", "l1"])
@pytest.mark.parametrize(
    "kind",
    [
        CompressedScaffnew,
        lambda **o: CompressedScaffnew(**o, senders=N),
        lambda **o: TAMUNA(**o, senders=N + 3),
        FedComLoc,
        lambda **o: FedComLoc(**o, variant="local"),
        lambda **o: FedComLoc(**o, variant="global"),
    ],
    ids=["whole", "senders = N", "more senders than clients", "com", "local", "global"],
)
def test_with_nothing_compressed_they_are_scaffnew(kind, h, probability):
    options = {**LONG, "regularizer": h, "probability": probability}
    same(kind(**options), Scaffnew(**options))


@pytest.mark.parametrize("h", [Zero(), H], ids=["smooth", "l1"])
def test_with_everyone_tamuna_is_compressed_scaffnew(h):
    same(TAMUNA(**LONG, senders=3, regularizer=h), CompressedScaffnew(**LONG, senders=3, regularizer=h))


@pytest.mark.parametrize("mu", [0.0, 0.2])
def test_locodl_with_nothing_compressed_is_scaffnew_with_as_many_clients_that_have_g(mu):
    eye = mu * torch.eye(20, dtype=torch.float64).expand(N, -1, -1)
    twice = Quadratics(torch.cat([PROBLEM.a - eye, eye]), torch.cat([PROBLEM.b, torch.zeros_like(PROBLEM.b)]))
    ours = simulate(LoCoDL(**LONG, shift=mu), PROBLEM, 40).points
    theirs = simulate(Scaffnew(**LONG), twice, 40).points
    torch.testing.assert_close(torch.stack(ours), torch.stack(theirs), rtol=0, atol=1e-11)


# Rounds that end at random


def test_the_number_of_steps_is_geometric_and_cut_off():
    method, keys = Scaffnew(local_steps=4, probability=0.3), [round_key(0, t, torch.arange(3)) for t in range(1500)]
    drawn = torch.stack([method.steps_in(key) for key in keys])
    shares = torch.bincount(drawn, minlength=5)[1:] / len(keys)
    torch.testing.assert_close(shares, torch.tensor([0.3, 0.21, 0.147, 0.343]), rtol=0, atol=0.04)
    assert int(Scaffnew(local_steps=4, probability=1.0).steps_in(keys[0])) == 1
    assert (method.step, Scaffnew(local_steps=4).step) == (pytest.approx(0.1 / 0.3), pytest.approx(0.4))


@pytest.mark.parametrize("kind", [Scaffnew, CompressedScaffnew])
def test_gradients_after_the_last_step_make_no_difference(kind):
    """Those that would be taken after the round has ended may be anything."""
    method = kind(**LONG, probability=0.4)
    replica = method.replica_init(PROBLEM.z0)
    clients = {name: v.repeat(N, 1) + 0.1 for name, v in method.client_init(PROBLEM.z0).items()}
    key = next(key for t in range(99) if int(method.steps_in(key := round_key(0, t, torch.arange(N)))) == 2)

    def oracle(x, k):
        return PROBLEM.oracle(x, k) if k < 2 else torch.full_like(PROBLEM.b, 1e6)

    found, expected = (method.local(replica, dict(clients), f, key) for f in (oracle, PROBLEM.oracle))
    for part, payload in expected[0].items():
        torch.testing.assert_close(found[0][part].dense(), payload.dense(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [Scaffnew, CompressedScaffnew, FedComLoc])
def test_a_client_by_itself_draws_as_many_steps(kind):
    method = kind(**LONG, probability=0.3, regularizer=H)
    replicas, clients, _ = deploy(method, PROBLEM, 8)
    stacked = simulate(method, PROBLEM, 8)
    torch.testing.assert_close(replicas[0]["z"], stacked.replica["z"], rtol=0, atol=1e-12)
    for part, table in stacked.clients.items():
        torch.testing.assert_close(torch.stack([c[part] for c in clients]), table, rtol=0, atol=1e-10)


# Bytes, refusals, CUDA graphs


@pytest.mark.parametrize(("senders", "values"), [(0, 20), (2, 7), (3, 10)])
def test_what_is_sent(senders, values):
    """⌈ps/N⌉ values and a column's number, and no indices; down one vector."""
    method = CompressedScaffnew(**LONG, senders=senders)
    replica, server = method.replica_init(PROBLEM.z0), method.server_init(PROBLEM.z0)
    clients = {name: v.repeat(N, 1) for name, v in method.client_init(PROBLEM.z0).items()}
    up, _ = method.local(replica, clients, PROBLEM.oracle, round_key(0, 0, torch.arange(N)))
    assert up["x"].values.shape == (N, values)
    assert sum(payload.paper_nbytes()[0] for payload in up.values()) == 4 * values + (4 if senders else 0)
    rows = [{part: payload.rows()[i] for part, payload in up.items()} for i in range(N)]
    frames = [encode(row, FrameKind.UP, 0) for row in rows]
    assert [len(frame) for frame in frames] == frame_nbytes(up).tolist()
    parts = {part: [decode(frame).message[part] for frame in frames] for part in up}
    for ours, theirs in zip(parts["x"], up["x"].rows(), strict=True):
        assert torch.equal(ours.dense(), theirs.dense())
    down, _ = method.server_step(server, replica, received(up))
    assert int(down["z"].paper_nbytes()) == 4 * 20


def test_who_cannot_know_its_place_or_count_alike_is_told():
    with pytest.raises(ConfigError, match="senders is 1; it must be 0, which stands for all, or at least 2"):
        CompressedScaffnew(senders=1)
    with pytest.raises(ConfigError, match="a client by itself is not told its place; simulate the run"):
        deploy(TAMUNA(**LONG, senders=2), PROBLEM, 1)
    problem = lasso(L1(0.1), num_clients=4, samples=10, dim=8, support=2)
    with pytest.raises(ConfigError, match="TAMUNA counts all clients alike; take weighting = 'uniform'"):
        Simulation(problem, TAMUNA(senders=2), weighting="samples")


@pytest.mark.parametrize(
    "method",
    [
        Scaffnew(**LONG, probability=0.3),
        CompressedScaffnew(**LONG, senders=2, probability=1.0),
        FedComLoc(**LONG, compressor=TopK(ratio=0.2), variant="local"),
        FedComLoc(**LONG, compressor=TopK(ratio=0.2), variant="global"),
    ],
    ids=["random steps", "columns", "local", "global"],
)
def test_options_read_nothing_back(method):
    """On tensors without values."""
    z0 = torch.empty(20, device="meta")
    key = round_key(0, torch.zeros((), dtype=torch.int64, device="meta"), torch.arange(4, device="meta"))
    replica, server = method.replica_init(z0), method.server_init(z0)
    clients = {name: v.repeat(4, 1) for name, v in method.client_init(z0).items()}
    up, _ = method.local(replica, clients, lambda x, k: torch.empty(4, 20, device="meta"), key)
    down, _ = method.server_step(server, replica, received(up).of({p: v.rows() for p, v in up.items()}, key.shared))
    assert method.advance(replica, down)["z"].shape == (20,)
