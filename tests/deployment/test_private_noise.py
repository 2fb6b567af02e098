"""A deployed client's own noise: unknown to the server, the same for the same work, never used twice, and counted."""

import dataclasses

import pytest
import torch

from fedcef.algorithms import FedCEF
from fedcef.compressors import Identity
from fedcef.compressors.private import Private
from fedcef.core.errors import RunError
from fedcef.core.rng import round_key
from fedcef.deployment import RunId, Worker, one_client
from fedcef.deployment.checks import hash_of
from fedcef.deployment.messages import Order, Refusal, Result, Stamp, decode_order, decode_reply
from fedcef.deployment.private_noise import PrivateNoise, normals
from fedcef.deployment.protocol import snapshot
from fedcef.privacy import epsilon
from fedcef.wire import decode

from .fault_kinds import CLIENT
from .faulty_disk import FaultyDisk, Killed
from .loopback import Loopback
from .setting import small_settings

CLIP, NOISE = 0.5, 0.02
SETTINGS = small_settings("fedcef", rounds=6, compressor={"name": "identity"}, privacy={"clip": CLIP, "noise": NOISE})
RUN = RunId(b"settings", b"a-nonce.")
ORDER = Order(RUN, 3, 1, None, bytes(16), ())
STAMP = Stamp(2, bytes(16))
KEY = round_key(0, 3, torch.tensor(1))


@pytest.fixture
def loop(tmp_path):
    return Loopback(SETTINGS, tmp_path)


def handled(worker, order):
    return decode_reply(worker.handle(order), 10**6)


def delta(reply):
    return decode(reply.frame).message["delta"].dense()


def lose_newest_state(loop, client):
    max(loop.folder(client).glob("*.state"), key=lambda path: path.stat().st_mtime_ns).unlink()


# The noise


def drawn(own, order=ORDER, base=STAMP, x=0.0, dim=8):
    """The noise that an order gets for a vector."""
    algorithm = own.protect(FedCEF(compressor=Private(inner=Identity(), clip=1.0, noise=1.0)), order, base)
    return algorithm.compressor.draw(torch.full((dim,), x, dtype=torch.float64), KEY)


def test_everything_that_a_message_depends_on_changes_its_noise(tmp_path):
    own = PrivateNoise(tmp_path, most=100)
    others = [
        drawn(own),
        drawn(own, x=1e-300),
        drawn(own, base=None),
        drawn(own, base=Stamp(2, b"another state..!")),
        drawn(own, base=Stamp(1, bytes(16))),
        drawn(own, dataclasses.replace(ORDER, round=4)),
        drawn(own, dataclasses.replace(ORDER, client=2)),
        drawn(own, dataclasses.replace(ORDER, replica=b"another replica.")),
        drawn(own, dataclasses.replace(ORDER, run=RunId(b"settings", b"another."))),
        drawn(PrivateNoise(tmp_path / "another client", most=100)),
    ]
    numbers = torch.cat(others).tolist()
    assert len(set(numbers)) == len(numbers)
    assert torch.equal(drawn(PrivateNoise(tmp_path, most=100)), others[0])  # after a restart
    assert torch.equal(drawn(own, dataclasses.replace(ORDER, frames=(b"resent",))), others[0])


def test_the_stream_is_normal_and_stays_what_it_is():
    numbers = normals(b"seed", 300_000)
    n = len(numbers)
    assert abs(float(numbers.mean())) < 4 / n**0.5
    assert float(numbers.var()) == pytest.approx(1, abs=4 * (2 / n) ** 0.5)
    assert float(numbers.pow(4).mean()) == pytest.approx(3, abs=4 * (96 / n) ** 0.5)
    assert torch.equal(normals(b"seed", 5), numbers[:5])
    assert normals(b"seed", 2).tolist() == pytest.approx([-0.3397242633122693, -1.6123639578049604], abs=1e-12)


def test_only_what_is_counted_gets_noise_and_only_so_often(tmp_path):
    own = PrivateNoise(tmp_path, most=2)
    first = drawn(own)
    assert own.messages(RUN) == 1
    assert torch.equal(drawn(own), first)
    assert own.messages(RUN) == 1
    drawn(own, x=1.0)
    with pytest.raises(RunError, match="has sent 2 private messages"):
        drawn(PrivateNoise(tmp_path, most=2), x=2.0)
    assert drawn(own, dataclasses.replace(ORDER, run=RunId(b"settings", b"another."))) is not None


def test_a_damaged_secret_stops_a_client(tmp_path):
    own = PrivateNoise(tmp_path, most=9)
    drawn(own)
    (path,) = tmp_path.glob("*.secret")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="it sends no more in this run"):
        drawn(own)


# The client


def test_the_server_cannot_compute_the_noise(loop):
    """From the client's own data even: what remains is noise of the promised size that the public key does not give."""
    order = loop.server.start_round(0.0)[1]
    reply = handled(loop.workers[1], order)
    worker = loop.workers[1]
    protocol, z0 = worker.protocol, loop.problem.z0
    oracle = worker.gradients.in_round(0, SETTINGS.local_steps)
    algorithm = protocol.algorithm
    silent = dataclasses.replace(algorithm, compressor=dataclasses.replace(algorithm.compressor, noise=0.0))
    state = protocol.start(), algorithm.client_init(z0), oracle, protocol.rounds.of_client(0, 1).compression
    clipped = silent.local(*state)[0]["delta"].dense()
    public = algorithm.local(*state)[0]["delta"].dense() - clipped
    noise = delta(reply) - clipped
    dim = len(noise)
    for found in (noise, public):
        assert float(found.norm()) == pytest.approx(CLIP * NOISE * dim**0.5, rel=0.4)
    assert float((noise - public).norm()) > CLIP * NOISE * dim**0.5
    secret = next(loop.folder(1).glob("*.secret"))
    assert not list((loop.path / "server").rglob(secret.name))


def test_the_same_order_gives_the_same_reply(loop):
    loop.run(2)
    order = loop.server.start_round(0.0)[1]
    reply = loop.workers[1].handle(order)
    assert loop.workers[1].handle(order) == reply
    assert loop.open_worker(1).handle(order) == reply
    lose_newest_state(loop, 1)
    again = loop.open_worker(1)
    assert again.handle(order) == reply  # the work itself was done again
    assert again.noise.messages(loop.server.run) == 3


def test_a_server_that_asks_twice_with_another_replica_gets_other_noise_and_pays(loop):
    """The same noise on two vectors would give away their difference."""
    loop.run(2)
    order = decode_order(loop.server.start_round(0.0)[1])
    replica = {**loop.server.state.replica, "z": loop.server.state.replica["z"] * (1 + 1e-6)}
    trick = dataclasses.replace(order, replica=hash_of(replica), frames=(snapshot(replica, 2),))
    honest, tricked = handled(loop.workers[1], order.encode()), handled(loop.workers[1], trick.encode())
    assert float((delta(honest) - delta(tricked)).norm()) > CLIP * NOISE
    assert loop.workers[1].noise.messages(loop.server.run) == 4


def test_after_its_share_of_messages_a_client_refuses(loop):
    worker = loop.workers[1]
    worker.noise.most = 2
    loop.run(2)
    order = loop.server.start_round(0.0)[1]
    reply = handled(worker, order)
    assert isinstance(reply, Refusal)
    assert "has sent 2 private messages" in reply.reason
    assert Worker(SETTINGS, one_client(loop.problem, 1), worker.store).noise.most == SETTINGS.rounds


def test_neither_samples_nor_seconds_are_told(loop, tmp_path):
    order = loop.server.start_round(0.0)[1]
    reply = handled(loop.workers[1], order)
    assert isinstance(reply, Result)
    assert (reply.samples, reply.seconds) == (1, 0.0)
    plain = Loopback(small_settings("fedcef"), tmp_path / "plain")
    reply = handled(plain.workers[1], plain.server.start_round(0.0)[1])
    assert reply.samples == 12
    assert reply.seconds > 0
    assert not list(plain.folder(1).glob("*.secret"))


@pytest.mark.parametrize("fault", ["kill", "full"])
def test_trouble_at_any_step_of_writing_the_secret(loop, fault):
    """The client goes on, and what it sends was counted before."""
    loop.run(2)
    order = loop.server.start_round(0.0)[1]
    worker = loop.workers[1]
    for step in range(4):
        disk = FaultyDisk()
        worker.noise.disk = disk
        disk.arm(fault, step)
        if fault == "kill":
            with pytest.raises(Killed):
                worker.handle(order)
        else:
            assert isinstance(handled(worker, order), Refusal)
        worker = loop.open_worker(1)
        assert worker.noise.messages(loop.server.run) in (2, 3)
        assert worker.store.load(loop.server.run).round == 1  # no reply without a count
    reply = worker.handle(order)
    assert loop.open_worker(1).handle(order) == reply
    assert worker.noise.messages(loop.server.run) == 3


# The run


def test_everyone_has_the_same_settings(loop):
    assert {worker._digest for worker in loop.workers} == {loop.server.run.settings}


def test_a_run_ends_and_tells_its_price(loop):
    loop.run()
    summary = loop.server.finish()
    assert summary["epsilon"] == epsilon(NOISE, SETTINGS.rounds, 1e-5)
    assert summary["delta"] == 1e-5
    assert [worker.noise.messages(loop.server.run) for worker in loop.workers] == [6] * 5


@pytest.mark.parametrize("seed", range(2))
def test_with_faults_the_control_is_still_the_mean_of_the_clients(tmp_path, seed):
    settings = small_settings("fedcef", rounds=15, privacy={"clip": CLIP, "noise": NOISE})
    loop = Loopback(settings, tmp_path, seed=seed, chance=0.1, kinds=(*CLIENT, "drop reply", "double order"))
    for worker in loop.workers:
        worker.noise.most = 10**6  # work that is lost in faults is counted, too
    opened = loop.open_worker

    def open_worker(client):
        worker = opened(client)
        worker.noise.most = 10**6
        return worker

    loop.open_worker = open_worker
    loop.run()
    assert sum(loop.faults.values()) > 20
    state, states = loop.server.state, loop.client_states()
    sums = [state.sums.of(client, state.replies, state.round)["delta"] for client in range(settings.num_clients)]
    torch.testing.assert_close(state.replica["c"], torch.stack(sums).mean(0), rtol=0, atol=1e-5)
    assert sum(state is not None for state in states) >= 3
    assert all(torch.equal(state["c_i"], sent) for state, sent in zip(states, sums, strict=True) if state is not None)
