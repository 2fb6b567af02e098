"""What a client tells the person who runs it: once, and only what is so."""

import dataclasses
import shutil
import time

import pytest

from fedcef.deployment import ClientStore, RunId, Worker, one_client
from fedcef.deployment.messages import Need, decode_order, decode_reply

from .loopback import Loopback
from .setting import small_settings

SETTINGS = small_settings("fedcef", rounds=6)


@pytest.fixture
def loop(tmp_path):
    return Loopback(SETTINGS, tmp_path)


def heard_from(loop, client, order, times=1):
    """What a client says that is started now and gets an order."""
    heard = []
    store = ClientStore(loop.folder(client), client)
    worker = Worker(SETTINGS, one_client(loop.problem, client), store, tell=heard.append)
    for _ in range(times):
        reply = worker.handle(order)
    return heard, decode_reply(reply, 10**6)


def test_nothing_while_all_is_well(loop):
    assert heard_from(loop, 1, loop.server.start_round(0.0)[1], times=2)[0] == []
    loop.run(2)
    assert heard_from(loop, 1, loop.server.start_round(0.0)[1], times=2)[0] == []
    assert loop.notes == []


def test_a_refusal_and_its_reason(loop):
    order = dataclasses.replace(decode_order(loop.server.start_round(0.0)[1]), client=2)
    heard, reply = heard_from(loop, 1, order.encode())
    assert heard == [reply.reason]
    assert "for client 2" in reply.reason


def test_a_damaged_state_once(loop):
    loop.run(2)
    newest = max(loop.folder(1).glob("*.state"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-9])
    heard, _ = heard_from(loop, 1, loop.server.start_round(0.0)[1], times=2)
    assert len([sentence for sentence in heard if "damaged" in sentence]) == 1


def test_a_state_that_is_lost(loop):
    loop.run(2)
    shutil.rmtree(loop.folder(1))
    heard, _ = heard_from(loop, 1, loop.server.start_round(0.0)[1])
    assert len(heard) == 1
    assert heard[0].startswith("Client 1 has not its state of round 1, which the server accepted")


def test_states_of_other_runs(loop):
    order = decode_order(loop.server.start_round(0.0)[1])
    loop.workers[1].handle(order.encode())
    other = dataclasses.replace(order, run=RunId(order.run.settings, b"another."))
    heard, _ = heard_from(loop, 1, other.encode())
    assert heard == [f"The states in {loop.folder(1)} are of other runs; client 1 begins afresh."]


def test_a_replica_that_is_not_the_server_s(loop):
    order = dataclasses.replace(decode_order(loop.server.start_round(0.0)[1]), replica=b"\1" * 16)
    heard, reply = heard_from(loop, 1, order.encode())
    assert isinstance(reply, Need)
    assert heard == ["The replica of round 0 is not the server's; a snapshot is asked for."]


def test_the_server_is_told_how_long_the_work_took(loop):
    order, began = loop.server.start_round(0.0)[1], time.perf_counter()
    _, reply = heard_from(loop, 1, order)
    assert 0 < reply.seconds <= time.perf_counter() - began
