"""Messages of the stages as bytes, and a client's session on its disk."""

import json

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="Flower is not installed: pip install 'fedcef[flower]'")

from fedcef.core.errors import RunError
from fedcef.secure.primitives import SecureError
from fedcef.secure.server import ServerSession
from fedcef.secure.stages import Stage, StageError, StageMessage, decode_stage
from fedcef.secure.store import NAME, SessionStore

from .session import RUN

MESSAGES = [
    StageMessage(Stage.KEYS, RUN, b"s" * 16, 7, 3),
    StageMessage(Stage.SHARES, RUN, b"s" * 16, 2**32 - 1, 0, {1: b"ab", 2**32 - 1: b"cd"}, 2),
    StageMessage(Stage.UNMASK, RUN, b"s" * 16, 0, 9, {9: b"\1", 4: b"\0"}),
    StageMessage(Stage.REFUSED, RUN, b"s" * 16, 0, 9, remark="Because of ε."),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.stage.name)
def test_what_is_sent_is_what_comes(message):
    data = message.encode()
    assert decode_stage(data) == message
    assert len(data) == 58 + sum(4 + len(entry) for entry in message.entries.values()) + len(message.remark.encode())


def test_anything_else_is_refused():
    random = np.random.default_rng(0)
    for message in MESSAGES:
        data = message.encode()
        for end in range(len(data)):
            with pytest.raises(StageError):
                decode_stage(data[:end])
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(StageError):
                decode_stage(bytes(flipped))
        with pytest.raises(StageError):
            decode_stage(data + bytes(random.integers(256, size=3, dtype=np.uint8)))
    with pytest.raises(StageError, match="one length"):
        StageMessage(Stage.KEYS, RUN, RUN, 0, 0, {1: b"a", 2: b""}).encode()


def test_a_repeated_request_has_the_same_reply_from_the_disk(tmp_path):
    server = ServerSession(RUN, 5, range(3))
    stores = {client: SessionStore(tmp_path / str(client), client) for client in range(3)}
    for client, request in server.begin().items():
        reply = stores[client].handle(request)
        assert SessionStore(tmp_path / str(client), client).handle(request) == reply
        server.take(client, decode_stage(reply))
    for client, request in server.share().items():
        reply = stores[client].handle(request)
        assert stores[client].handle(request) == reply
        server.take(client, decode_stage(reply))
    attached = server.attachments()[1]
    masks = stores[1].masking(attached, RUN, 5, 2 / 3)
    numbers = np.arange(4, dtype=np.uint32)
    masked = masks(numbers, 9)
    again = SessionStore(tmp_path / "1", 1).masking(attached, RUN, 5, 2 / 3)
    assert np.array_equal(again(numbers, 9), masked)
    with pytest.raises(SecureError, match="the same mask on two"):
        again(numbers + 1, 9)
    with pytest.raises(SecureError, match="another run or round"):
        stores[1].masking(attached, RUN, 6, 2 / 3)


def refusal(store, request):
    reply = decode_stage(store.handle(request))
    assert reply.stage == Stage.REFUSED
    return reply.remark


def test_a_session_that_is_lost_or_replaced_is_over(tmp_path):
    first, second = ServerSession(RUN, 0, range(2)), ServerSession(RUN, 0, range(2))
    stores = [SessionStore(tmp_path / str(client), client) for client in range(2)]
    for client, request in first.begin().items():
        first.take(client, decode_stage(stores[client].handle(request)))
    shares = first.share()
    stores[0].handle(second.begin()[0])
    assert "does not know this session" in refusal(stores[0], shares[0])
    (tmp_path / "1" / NAME).write_text("{}")
    assert "does not know this session" in refusal(stores[1], shares[1])
    assert "this is client 1" in refusal(stores[1], shares[0])
    assert json.loads((tmp_path / "0" / NAME).read_text())["session"] == second.session.hex()


def test_what_cannot_be_written_is_not_sent(tmp_path):
    class Full(type(SessionStore(tmp_path, 0).disk)):
        def replace(self, path, data):
            raise RunError("The disk is full.")

    store = SessionStore(tmp_path, 0, Full())
    assert refusal(store, ServerSession(RUN, 0, range(2)).begin()[0]) == "The disk is full."
