"""Orders and replies as bytes: fixed for good, and safe to read from anyone."""

import struct
import tracemalloc
import zlib
from contextlib import suppress

import numpy as np
import pytest
import torch

from fedcef.deployment.identity import RunId
from fedcef.deployment.messages import (
    OVERHEAD,
    MessageError,
    Need,
    Order,
    Refusal,
    Result,
    Stamp,
    decode_order,
    decode_reply,
)
from fedcef.wire import Dense, FrameKind, WireError, encode

RUN = RunId(b"settings", b"a-nonce.")
FRAME = encode({"delta": Dense(torch.tensor([1.0, -2.0]))}, FrameKind.UP, 7)
DOWN = tuple(encode({"z": Dense(torch.tensor([0.5]))}, FrameKind.DOWN, t) for t in (5, 6))
STAMP = Stamp(4, bytes(range(16)))
ORDER = Order(RUN, 7, 3, STAMP, b"r" * 16, DOWN)
REPLIES = [
    Result(RUN, 7, 3, STAMP, b"r" * 16, 120, 0.5, FRAME),
    Result(RUN, 7, 3, None, b"r" * 16, 1, 0.0, b""),
    Need(RUN, 7, 3, 5),
    Need(RUN, 7, 3, None),
    Refusal(RUN, 7, 3, "The disk is full."),
]


def sealed(content: bytes) -> bytes:
    return content + struct.pack("<I", zlib.crc32(content))


def test_what_is_written_is_read():
    assert decode_order(ORDER.encode()) == ORDER
    assert decode_order(Order(RUN, 0, 0, None, bytes(16), ()).encode()).frames == ()
    for reply in REPLIES:
        assert decode_reply(reply.encode(), 10_000) == reply


def test_golden_bytes():
    head = "46434f52 01 {} 73657474696e6773 612d6e6f6e63652e 07000000 03000000 {} 72727272727272727272727272727272 {} "
    stamp = "04000000 000102030405060708090a0b0c0d0e0f"
    result = head.format("02", stamp, "3700000000000000") + "7800000000000000 0000003f " + FRAME.hex()
    assert REPLIES[0].encode() == sealed(bytes.fromhex(result))
    order = head.format("01", stamp, "4600000000000000") + DOWN[0].hex() + DOWN[1].hex()
    assert ORDER.encode() == sealed(bytes.fromhex(order))
    nobody = "ffffffff" + 16 * "00"
    need = head.format("03", "05000000" + 16 * "00", 8 * "00").replace("72", "00", 16)
    assert REPLIES[2].encode() == sealed(bytes.fromhex(need))
    assert REPLIES[3].encode() == sealed(bytes.fromhex(need.replace("05000000" + 16 * "00", nobody)))


def test_a_stamp_tells_apart_what_a_round_number_cannot():
    first, second = Stamp.after(None, 3, b"one"), Stamp.after(None, 3, b"two")
    assert first.round == second.round
    assert first != second
    assert Stamp.after(first, 4, b"x") != Stamp.after(second, 4, b"x")
    assert Stamp.after(first, 4, b"x") == Stamp.after(first, 4, b"x")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "only 0 are left"),
        (b"x" * 200, "begin with b'xxxx'"),
        (sealed(ORDER.encode()[:4] + b"\x02" + ORDER.encode()[5:-4]), "version 2"),
        (ORDER.encode()[:-1], "its header says"),
        (ORDER.encode() + b"\0", "its header says"),
        (ORDER.encode()[:-1] + b"\0", "checksum"),
        (REPLIES[0].encode(), "of kind 2 came down"),
        (Order(RUN, 7, 3, None, bytes(16), (DOWN[0][:-1],)).encode(), "frames end at byte 0"),
    ],
)
def test_what_is_no_order(data, sentence):
    with pytest.raises(WireError, match=sentence):
        decode_order(data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (ORDER.encode(), "of kind 1 with .* bytes came up"),
        (sealed(REPLIES[2].encode()[:5] + b"\x09" + REPLIES[2].encode()[6:-4]), "of kind 9"),
        (REPLIES[0].encode() + bytes(10_000), "at most 10000 are taken"),
        (Result(RUN, 7, 3, None, bytes(16), 1, float("nan"), b"").encode(), "took nan seconds"),
    ],
)
def test_what_is_no_reply(data, sentence):
    with pytest.raises(MessageError, match=sentence):
        decode_reply(data, 10_000)


def test_a_reason_cannot_do_harm():
    reply = decode_reply(Refusal(RUN, 0, 0, "\x1b[2J\n" + "é" * 400).encode(), 10_000)
    assert len(reply.reason) <= 300
    assert reply.reason.replace("\ufffd", "").isprintable()


@pytest.mark.parametrize("seed", range(5))
def test_bytes_from_an_enemy(seed):
    """A reply, an order or one typed error, and no more memory than the bytes themselves take."""
    random = np.random.default_rng(seed)
    originals = [ORDER.encode(), *(reply.encode() for reply in REPLIES)]
    tracemalloc.start()
    for _ in range(2000):
        data = bytearray(originals[random.integers(len(originals))])
        for at in random.integers(min(len(data), 110), size=random.integers(1, 4)):
            data[at] = random.integers(256)
        if random.random() < 0.3:
            del data[random.integers(len(data)) :]
        if random.random() < 0.7 and len(data) > OVERHEAD:
            data[-4:] = struct.pack("<I", zlib.crc32(data[:-4]))
        for read in (decode_order, lambda d: decode_reply(d, 10_000)):
            with suppress(WireError):
                read(bytes(data))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_results_know_their_state():
    result = Result(RunId(b"settings", b"a-nonce."), 3, 1, None, bytes(16), 1, 0.0, b"frame")
    assert result.stamp == Stamp.after(None, 3, b"frame")
