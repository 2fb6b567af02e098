"""One client: idempotent, patient with old orders, and never a reply that is not on its disk."""

import dataclasses

import pytest

from fedcef.core.errors import ConfigError
from fedcef.deployment import ClientStore, RunId, Worker, one_client
from fedcef.deployment.messages import Need, Refusal, Result, decode_order, decode_reply
from fedcef.wire import WireError

from .loopback import Loopback
from .setting import equal, replayed, small_settings

SETTINGS = small_settings("fedcef", rounds=6)


@pytest.fixture
def loop(tmp_path):
    return Loopback(SETTINGS, tmp_path)


def asked(loop, number, order, **changes):
    """The reply to an order that is changed on its way."""
    order = dataclasses.replace(decode_order(order), **changes)
    return decode_reply(loop.workers[number].handle(order.encode()), 10**6)


def test_the_same_order_gives_the_same_reply(loop):
    loop.run(2)
    order = loop.server.start_round(0.0)[1]
    reply = loop.workers[1].handle(order)
    before = loop.workers[1].store.load(loop.server.run)
    assert loop.workers[1].handle(order) == reply
    assert loop.open_worker(1).handle(order) == reply  # and after a restart
    assert loop.workers[1].store.load(loop.server.run) is before


def test_work_done_again_after_a_lost_save_is_the_same(loop):
    """All but the seconds it took: the keys are those of the round."""
    loop.run(2)
    order = loop.server.start_round(0.0)[1]
    first = decode_reply(loop.workers[1].handle(order), 10**6)
    newest = max(loop.folder(1).glob("*.state"), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()
    second = decode_reply(loop.open_worker(1).handle(order), 10**6)
    assert dataclasses.replace(second, seconds=first.seconds) == first
    assert second.stamp == first.stamp


def test_an_order_of_a_round_that_is_over_is_refused(loop):
    old = loop.server.start_round(0.0)[1]
    loop.run(3)
    reply = asked(loop, 1, old)
    assert isinstance(reply, Refusal)
    assert "Round 0 is over" in reply.reason


def test_orders_for_others_are_refused(loop):
    order = loop.server.start_round(0.0)[1]
    assert "for client 2" in asked(loop, 1, order, client=2).reason
    assert "same TOML" in asked(loop, 1, order, run=RunId(b"settings", b"a-nonce.")).reason
    with pytest.raises(WireError):
        loop.workers[1].handle(order[:-3])


def test_a_client_that_missed_rounds_follows_the_log(loop, tmp_path):
    loop.run(2)
    have = loop.server.state.have
    have[1] = 0
    order = decode_order(loop.server.start_round(0.0)[1])
    assert [frame[7:11] for frame in order.frames] == [b"\0\0\0\0", b"\1\0\0\0"]  # rounds 0 and 1 of the log
    newcomer = Worker(SETTINGS, one_client(loop.problem, 1), ClientStore(tmp_path / "new", 1))
    reply = decode_reply(newcomer.handle(order.encode()), 10**6)
    assert isinstance(reply, Result)
    assert reply.base is None  # it has not the state of round 1
    assert equal(newcomer.store.load(loop.server.run).replica, loop.server.state.replica)


def test_a_gap_in_the_log_is_asked_for(loop, tmp_path):
    loop.run(2)
    order = loop.server.start_round(0.0)[1]
    newcomer = Worker(SETTINGS, one_client(loop.problem, 1), ClientStore(tmp_path / "new", 1))
    reply = newcomer.handle(order)
    assert decode_reply(reply, 10**6) == Need(loop.server.run, 2, 1, 0)
    verdict = loop.server.receive(loop.name(1), reply)
    assert (verdict.accepted, verdict.reason) == (False, "behind")
    assert loop.server.receive(loop.name(1), newcomer.handle(verdict.order)).accepted


def test_a_replica_that_differs_is_replaced_by_a_snapshot(loop):
    loop.run(2)
    store = loop.workers[1].store
    state = store.load(loop.server.run)
    store.save(loop.server.run, dataclasses.replace(state, replica={**state.replica, "c": state.replica["c"] + 1}))
    order = loop.server.start_round(0.0)[1]
    reply = loop.workers[1].handle(order)
    assert decode_reply(reply, 10**6).have is None
    verdict = loop.server.receive(loop.name(1), reply)
    reply = decode_reply(loop.workers[1].handle(verdict.order), 10**6)
    assert isinstance(reply, Result)
    assert reply.base == loop.server.state.last[1]  # its own state was good
    assert equal(store.load(loop.server.run).replica, loop.server.state.replica)


def test_the_acknowledgement_says_which_of_two_replies_counts(loop):
    """A client answers, loses its state and answers again afresh; the server takes the slow first answer."""
    loop.run(2)
    order = loop.server.start_round(0.0)[1]
    first = loop.workers[1].handle(order)
    for path in loop.folder(1).glob("*.state"):
        path.unlink()
    loop.workers[1] = loop.open_worker(1)
    need = loop.server.receive(loop.name(1), loop.workers[1].handle(order))
    second = loop.workers[1].handle(need.order)
    assert decode_reply(second, 10**6).base is None
    assert loop.server.receive(loop.name(1), first).accepted
    assert loop.server.receive(loop.name(1), second).reason == "duplicate"
    for client in (0, 2, 3, 4):
        order = loop.server._order(client)
        assert loop.server.receive(loop.name(client), loop.workers[client].handle(order)).accepted
    loop.server.close_round(1.0)
    order = loop.server.start_round(2.0)[1]
    reply = decode_reply(loop.workers[1].handle(order), 10**6)
    assert reply.base is None  # what it has is not what the server has: it begins afresh, and says so
    history = [dict.fromkeys(range(5), False) for _ in range(3)]
    assert equal(loop.server.state.replica, replayed(SETTINGS, history).replica)


def test_a_budget_is_refused():
    settings = SETTINGS.model_copy(update={"budget": 10**6})
    problem = settings.build_problem()
    with pytest.raises(ConfigError, match="leave budget out"):
        Worker(settings, one_client(problem, 0), ClientStore("nowhere", 0))
