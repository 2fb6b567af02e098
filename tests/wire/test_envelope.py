"""The envelope of frames, checkpoints, messages and entries: its bytes, and every way in which they can be wrong."""

from __future__ import annotations

import doctest
import zlib

import numpy as np
import pytest

from fedcef.core.errors import RunError
from fedcef.wire import WireError, envelope
from fedcef.wire.envelope import Envelope

PLAIN = Envelope("thing", b"TH", 3, fields="H4s", lengths="BI")
CHECKED = Envelope("thing", b"TH", 3, fields="", lengths="BI", error=RunError, head_checked=True)


def crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little")


def test_bytes() -> None:
    content = b"TH\x03" + b"\x07\x01" + b"abcd" + b"\x02" + b"\x03\0\0\0" + b"xy" + b"123"
    assert PLAIN.pack([263, b"abcd"], [b"xy", b"123"]) == content + crc(content)
    head = b"TH\x03" + b"\x02" + b"\x03\0\0\0" + b"xy"
    content = head + crc(head) + b"123"
    assert CHECKED.pack([], [b"xy", b"123"]) == content + crc(content)


@pytest.mark.parametrize("parts", [[b"", b""], [b"xy", b""], [b"", b"123"], [b"x" * 255, b"y" * 1000]])
def test_what_was_packed_is_unpacked(parts: list[bytes]) -> None:
    for kind, fields in ((PLAIN, (1, b"abcd")), (CHECKED, ())):
        data = kind.pack(fields, parts)
        assert len(data) == kind.overhead + sum(map(len, parts))
        for given in (data, memoryview(data), memoryview(np.frombuffer(data, np.int8).copy())):
            opened = kind.unpack(given)
            assert opened.fields == fields
            assert [bytes(part) for part in opened.parts] == parts


GOOD = PLAIN.pack([1, b"abcd"], [b"xy", b"123"])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "14 bytes are needed for the thing header, but only 0 are left"),
        (GOOD[:13], "14 bytes are needed for the thing header, but only 13 are left"),
        (b"XX" + GOOD[2:], "The bytes begin with b'XX', not with b'TH'; this is not a thing"),
        (GOOD[:2] + b"\x04" + GOOD[3:], "The thing is of version 4; only version 3 can be read"),
        (GOOD[:-1], "The thing is cut off: its header says 23 bytes, there are 22"),
        (GOOD + b"\0", "The thing is followed by other bytes: its header says 23 bytes, there are 24"),
        (GOOD[:-6] + b"?" + GOOD[-5:], "The checksum does not fit the thing's content; the bytes were damaged"),
    ],
)
def test_what_is_no_envelope(data: bytes, sentence: str) -> None:
    with pytest.raises(WireError, match=sentence):
        PLAIN.unpack(data)


def test_every_flipped_bit_is_noticed_by_the_error_of_the_format() -> None:
    data = CHECKED.pack([], [b"xy", b"123"])
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RunError):
            CHECKED.unpack(bytes(changed))


def test_the_first_of_several() -> None:
    assert PLAIN.first(GOOD + GOOD) == GOOD
    for torn in (b"", bytes(100), GOOD[:-1], GOOD[:5], GOOD[:-1] + b"?"):
        assert PLAIN.first(torn) is None
    with pytest.raises(WireError, match="this is not a thing"):
        PLAIN.first(b"something else")


def test_the_examples_are_right() -> None:
    assert doctest.testmod(envelope).failed == 0
