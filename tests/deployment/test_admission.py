"""Which replies are taken: hostile ones, forged ones, and those that are merely far too large."""

import dataclasses
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import torch

from fedcef.compressors.on_grid import OnGrid
from fedcef.deployment import DeploymentSettings, RunId
from fedcef.deployment.checks import Unusable, checked_message
from fedcef.deployment.messages import Stamp, decode_reply
from fedcef.wire import Dense, FrameKind, Sparse, encode

from .forged import of_kind, relayed, with_nan
from .loopback import Loopback
from .setting import equal, replayed, small_settings

EVERYONE = dict.fromkeys(range(5), False)

HOSTILE = {
    "invalid frame": lambda frame, p: frame[:-1],
    "NaN": lambda frame, p: with_nan(encode({"delta": Dense(torch.zeros(p))}, FrameKind.UP, 1)),
    "another round's frame": lambda frame, p: encode({"delta": Dense(torch.zeros(p))}, FrameKind.UP, 2),
    "a down frame": lambda frame, p: encode({"delta": Dense(torch.zeros(p))}, FrameKind.DOWN, 1),
    "other names": lambda frame, p: encode({"sum": Dense(torch.zeros(p))}, FrameKind.UP, 1),
    "one part more": lambda frame, p: encode(
        {"delta": Dense(torch.zeros(p)), "more": Dense(torch.zeros(p))}, FrameKind.UP, 1
    ),
    "no parts": lambda frame, p: encode({}, FrameKind.UP, 1),
    "too short": lambda frame, p: encode({"delta": Dense(torch.zeros(p - 1))}, FrameKind.UP, 1),
    "too long": lambda frame, p: encode({"delta": Dense(torch.zeros(p + 1))}, FrameKind.UP, 1),
    "huge dim": lambda frame, p: encode(
        {"delta": Sparse(torch.ones(1), torch.tensor([2**31 - 1]), 2**31)}, FrameKind.UP, 1
    ),
    "float64": lambda frame, p: encode({"delta": Dense(torch.zeros(p, dtype=torch.float64))}, FrameKind.UP, 1),
    "a relay": lambda frame, p: of_kind(1, encode(relayed(p), FrameKind.DOWN, 1)),
    "a down-message": lambda frame, p: encode(relayed(p), FrameKind.DOWN, 1),
    "no entries of a grid": lambda frame, p: encode(
        {"delta": OnGrid(torch.zeros(0), torch.tensor(5), p, 0, 8, -3, unbiased=True)}, FrameKind.UP, 1
    ),
    "huge numbers": lambda frame, p: encode({"delta": Dense(torch.full((p,), 1e38))}, FrameKind.UP, 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages(tmp_path, name):
    """Refused, and the round goes on without them."""
    settings = small_settings("fedcef", rounds=3)
    loop = Loopback(settings, tmp_path).run(1)
    orders = loop.server.start_round(0.0)
    reply = decode_reply(loop.workers[0].handle(orders[0]), 10**6)
    forged = dataclasses.replace(reply, frame=HOSTILE[name](reply.frame, loop.problem.dim)).encode()
    tracemalloc.start()
    verdict = loop.server.receive(loop.name(0), forged)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert not verdict.accepted
    assert verdict.reason in ("invalid frame", "other vectors", "too large")
    for client in range(1, 5):
        assert loop.server.receive(loop.name(client), loop.workers[client].handle(orders[client])).accepted
    assert loop.server.can_close(0.0)
    assert loop.server.close_round(0.0)["reasons"] == {verdict.reason: 1}
    history = [EVERYONE, dict.fromkeys(range(1, 5), False)]
    assert equal(loop.server.state.replica, replayed(settings, history).replica)


def test_a_form_whose_vector_cannot_be_computed_is_refused(monkeypatch):
    """It may be of another package; whatever that raises, it does not end the server."""
    frame = encode({"delta": Dense(torch.zeros(3))}, FrameKind.UP, 1)
    monkeypatch.setattr(Dense, "dense", lambda self: 1 / 0)
    with pytest.raises(Unusable) as refused:
        checked_message(frame, 1, {"delta": 3}, torch.float32, {})
    assert refused.value.reason == "invalid frame"
    assert refused.value.detail == "delta cannot be decoded: ZeroDivisionError: division by zero"


def test_replies_that_claim_what_is_not_so(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path).run(1)
    orders = loop.server.start_round(0.0)
    reply = decode_reply(loop.workers[0].handle(orders[0]), 10**6)

    def verdict(name="site-0", **changes):
        return loop.server.receive(name, dataclasses.replace(reply, **changes).encode()).reason

    assert verdict("nobody") == "unknown client"
    assert verdict("site-1") == "another client's"
    assert verdict(run=RunId(reply.run.settings, b"another.")) == "another run"
    assert verdict(round=0) == "late"
    assert verdict(round=2) == "another round"
    assert verdict(replica=bytes(16)) == "another replica"
    assert verdict(base=Stamp(0, bytes(16))) == "another state"
    assert verdict(samples=0) == "other vectors"
    assert loop.server.receive("site-0", b"x" * (loop.server.limit + 1)).reason == "unreadable"
    assert verdict() == ""
    assert verdict() == "duplicate"


def test_a_claim_of_many_samples_is_an_outlier_where_samples_count(tmp_path):
    data = {"data": {"name": "digits"}, "model": {"name": "softmax"}}
    settings = small_settings("fedda", rounds=2, weighting="samples", **data)
    loop = Loopback(settings, tmp_path)
    orders = loop.server.start_round(0.0)
    for client, order in orders.items():
        reply = decode_reply(loop.workers[client].handle(order), 10**6)
        reply = dataclasses.replace(reply, samples=10**12) if client == 3 else reply
        assert loop.server.receive(loop.name(client), reply.encode()).accepted
    assert loop.server.close_round(0.0)["reasons"] == {"outlier": 1}


def test_an_unreadable_reply_is_asked_for_again_but_not_for_ever(tmp_path):
    loop = Loopback(small_settings("fedcef"), tmp_path, deployment=DeploymentSettings(retries=2, min_clients=3))
    orders = loop.server.start_round(0.0)
    reply = loop.workers[0].handle(orders[0])
    for _ in range(2):
        assert loop.server.receive("site-0", reply[:-1]).order == orders[0]
    assert loop.server.receive("site-0", reply[:-1]).order is None
    assert loop.server.open.given_up == {0}
    assert loop.server.receive("site-0", reply).accepted  # better late than never


def test_random_bytes(tmp_path):
    """A reply with flipped bits and repaired checksums never raises, and never gets in unless it is unchanged."""
    loop = Loopback(small_settings("fedcef"), tmp_path)
    orders = loop.server.start_round(0.0)
    reply = loop.workers[0].handle(orders[0])
    random = np.random.default_rng(0)
    reasons = set()
    for _ in range(1500):
        data = bytearray(reply)
        for at in random.integers(len(data), size=random.integers(1, 3)):
            data[at] ^= 1 << int(random.integers(8))
        data[-4:] = struct.pack("<I", zlib.crc32(data[:-4]))
        loop.server.open.accepted.clear()
        verdict = loop.server.receive("site-0", bytes(data))
        reasons.add(verdict.reason)
        if verdict.accepted:  # only what nobody checks: how long it took, how many samples
            changed = decode_reply(bytes(data), 10**6)
            assert changed.frame == decode_reply(reply, 10**6).frame
    assert len(reasons) > 5


def test_a_bad_majority_is_measured_by_the_rounds_before(tmp_path):
    """It is refused, the others are not, and the round waits for better replies."""
    settings = small_settings("fedcef", rounds=3)
    loop = Loopback(settings, tmp_path).run(1)
    orders = loop.server.start_round(0.0)
    for client, order in orders.items():
        data = loop.workers[client].handle(order)
        data = loop.forged("large norm in reply", client, data)[1] if client < 3 else data
        assert loop.server.receive(loop.name(client), data).accepted
    loop.server.state.tell = loop.notes.append
    assert loop.server.close_round(0.0) is None
    assert "cannot end: 3 of its replies are far larger" in loop.notes[-1]
    assert sorted(loop.server.open.accepted) == [3, 4]
    assert loop.server.stalled(0.0)
    for client, order in loop.server.start_round(1.0).items():
        assert loop.server.receive(loop.name(client), loop.workers[client].handle(order)).accepted
    assert loop.server.close_round(1.0)["accepted"] == 5
    assert equal(loop.server.state.replica, replayed(settings, [EVERYONE] * 2).replica)
