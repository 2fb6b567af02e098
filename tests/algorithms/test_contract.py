"""What every registered method must do, whatever it computes."""

import pytest
import torch

from fedcef.algorithms import ALGORITHMS
from fedcef.compressors import TopK
from fedcef.core.rng import round_key
from fedcef.regularizers import L1
from fedcef.wire import FrameKind, decode, encode, frame_nbytes

from .setting import Quadratics, deploy, received, simulate

PROBLEM = Quadratics.random()
SHORT = {"fetchsgd"}
"""Methods whose messages are short by themselves, without a compressor."""


def build(name, **options):
    kind = ALGORITHMS[name]
    compressor = {"compressor": TopK(ratio=0.2)} if kind.compresses else {}
    return kind(local_lr=0.02, local_steps=4, regularizer=L1(0.05), **compressor, **options)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_single_vectors_through_bytes_equal_the_stack(name):
    algorithm = build(name)
    replicas, clients, server = deploy(algorithm, PROBLEM, 8)
    stacked = simulate(algorithm, PROBLEM, 8)
    for replica in replicas:
        for part, vector in stacked.replica.items():
            assert torch.equal(replica[part], server[part])
            torch.testing.assert_close(replica[part], vector, rtol=0, atol=1e-12)
    for part, table in stacked.clients.items():
        torch.testing.assert_close(torch.stack([client[part] for client in clients]), table, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_functions_leave_their_arguments_alone(name):
    algorithm = build(name)
    n, z0 = PROBLEM.num_clients, PROBLEM.z0
    outcome = simulate(algorithm, PROBLEM, 3)
    replica, clients = outcome.replica, outcome.clients
    before = {k: v.clone() for k, v in {**replica, **clients}.items()}
    server = {k: v + 1 for k, v in algorithm.server_init(z0).items()}
    server_before = {k: v.clone() for k, v in server.items()}

    up, _ = algorithm.local(replica, clients, PROBLEM.oracle, round_key(0, 3, torch.arange(n)))
    down, _ = algorithm.server_step(server, replica, received(up))
    algorithm.advance(replica, down)
    algorithm.model(replica)

    assert all(torch.equal(before[k], v) for k, v in {**replica, **clients}.items())
    assert all(torch.equal(server_before[k], v) for k, v in server.items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_messages_survive_the_wire_and_are_counted_exactly(name):
    algorithm = build(name)
    n, z0 = PROBLEM.num_clients, PROBLEM.z0
    replica, server = algorithm.replica_init(z0), algorithm.server_init(z0)
    clients = {k: v.repeat(n, 1) for k, v in algorithm.client_init(z0).items()}
    up, _ = algorithm.local(replica, clients, PROBLEM.oracle, round_key(0, 0, torch.arange(n)))
    down, _ = algorithm.server_step(server, replica, received(up))

    rows = {part: payload.rows() for part, payload in up.items()}
    sizes = frame_nbytes(up)
    assert sizes.shape == (n,)
    for i in range(n):
        message = {part: rows[part][i] for part in rows}
        frame = encode(message, FrameKind.UP, 0)
        assert len(frame) == int(sizes[i])
        for part, payload in decode(frame).message.items():
            assert torch.equal(payload.dense(), up[part].dense()[i])
    frame = encode(down, FrameKind.DOWN, 0)
    assert len(frame) == int(frame_nbytes(down))
    for part, payload in decode(frame).message.items():
        assert torch.equal(payload.dense(), down[part].dense())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_only_what_compresses_sends_less(name):
    algorithm = build(name)
    n, z0 = PROBLEM.num_clients, PROBLEM.z0
    clients = {k: v.repeat(n, 1) for k, v in algorithm.client_init(z0).items()}
    up, _ = algorithm.local(algorithm.replica_init(z0), clients, PROBLEM.oracle, round_key(0, 0, torch.arange(n)))
    kept = sum(int((payload.dense() != 0).sum()) for payload in up.values())
    assert (kept < n * len(z0)) is (algorithm.compresses or name in SHORT)
    assert algorithm.compressors_used == (("compressor",) if algorithm.compresses else ())
