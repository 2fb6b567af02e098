"""A log of frames one after the other, whole, torn at its end or damaged."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
import torch

from fedcef.wire import Dense, FrameKind, WireError, encode, read_frames, split
from fedcef.wire.checksums import checksums

FRAMES = [encode({"z": Dense(torch.full((size,), 2.0))}, FrameKind.DOWN, size) for size in range(1, 5)]
LOG = b"".join(FRAMES)
LAST = len(LOG) - len(FRAMES[-1])


def test_a_whole_log() -> None:
    frames, good = read_frames(LOG)
    assert good == len(LOG)
    assert [frame.round for frame in frames] == [1, 2, 3, 4]
    assert all(frame.message["z"].dense().tolist() == [2.0] * frame.round for frame in frames)
    assert read_frames(b"") == ([], 0)


def test_split_gives_the_bytes_themselves() -> None:
    views, good = split(memoryview(bytearray(LOG)))
    assert [bytes(view) for view in views] == FRAMES
    assert good == len(LOG)


def test_a_log_cut_anywhere_in_its_last_frame() -> None:
    for end in range(LAST + 1, len(LOG)):
        frames, good = read_frames(LOG[:end])
        assert [frame.round for frame in frames] == [1, 2, 3]
        assert good == LAST


TORN = FRAMES[3][:25]
TAILS = [
    *(b"\0", bytes(4096), FRAMES[0][:25] + bytes(len(FRAMES[0]) - 25), FRAMES[0][:19]),
    *(TORN + b"FCEF", TORN + b"FCEF\1", TORN + b"FCEF\2" + bytes(40)),  # what looks like the begin of another
]


@pytest.mark.parametrize("tail", TAILS)
def test_a_last_frame_that_was_not_written_out(tail: bytes) -> None:
    frames, good = read_frames(LOG + tail)
    assert (len(frames), good) == (4, len(LOG))


@pytest.mark.parametrize("offset", [11, 14, 25, 44])
def test_damage_before_whole_frames_is_an_error_even_in_a_length(offset: int) -> None:
    at = len(FRAMES[0]) + offset % len(FRAMES[1])
    damaged = bytearray(LOG)
    damaged[at] ^= 0x10
    with pytest.raises(WireError, match=f"Byte {len(FRAMES[0])} of the log: the frame is damaged, and others follow"):
        split(bytes(damaged))


@pytest.mark.parametrize("zeros", [1, 512])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_zeroed_frame_before_whole_ones_is_an_error(lost: int, zeros: int) -> None:
    """However many rounds are gone, up to as many as have room there; of the first frame nothing is known then."""
    for before, gone, after in ((FRAMES[:1], FRAMES[1 : 2 + lost], FRAMES[2 + lost :]), ([], FRAMES[:1], FRAMES[1:])):
        start, room = len(b"".join(before)), max(zeros, len(b"".join(gone)))
        if after:
            with pytest.raises(WireError, match=f"Byte {start} of the log: the frame is damaged, and others follow"):
                split(b"".join(before) + bytes(room) + b"".join(after))


def holding(*inside: bytes, round_: int = 5) -> bytes:
    """A frame whose values hold such bytes, and more of them."""
    content = b"".join(inside)
    values = content + bytes(-len(content) % 4) + bytes(4000)
    return encode({"z": Dense(torch.frombuffer(bytearray(values), dtype=torch.float32))}, FrameKind.DOWN, round_)


@pytest.mark.parametrize("round_", [0, 3, 4, 5, 9, 2**32 - 1])
def test_a_frame_within_a_torn_one_is_no_sign_of_damage(round_: int) -> None:
    """Unless its round may be a later one of this log; the log has rounds up to 4, and the torn frame is of round 5."""
    torn = holding(encode({}, FrameKind.DOWN, round_))[:-1]
    frames, good = split(LOG + torn)
    assert (len(frames), good) == (4, len(LOG))
    assert split(torn) == ([], 0) or round_ > 5


def test_a_frame_within_a_torn_one_that_may_be_the_next_is_told() -> None:
    """No one can tell it from a log whose fifth frame has a damaged length; losing rounds would be worse."""
    with pytest.raises(WireError, match="others follow"):
        split(LOG + holding(encode({}, FrameKind.DOWN, 6))[:-1])


def test_what_follows_at_the_declared_end_is_told_whatever_its_round() -> None:
    damaged = bytearray(LOG)
    damaged[7] ^= 0x80  # the round of the first frame: 129
    with pytest.raises(WireError, match="Byte 0 of the log: the frame is damaged, and others follow"):
        split(bytes(damaged))


def test_each_byte_is_read_a_few_times_however_many_headers_there_seem_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(data: bytes | memoryview, crc: int = 0) -> int:
        nonlocal read
        read += len(data)
        return real(data, crc)

    real = zlib.crc32
    monkeypatch.setattr(zlib, "crc32", counted)
    false = b"".join(
        struct.pack("<4sBBBIQ", b"FCEF", 1, 2, 0, 6, size) + bytes(21) for size in range(40_000, 60_000, 40)
    )
    log = LOG + holding(false, bytes(60_000))[:-1]
    assert split(log)[1] == len(LOG)
    assert read < 3 * len(log)


def test_checksums_of_overlapping_stretches() -> None:
    data = memoryview(np.random.default_rng(0).bytes(3000))
    starts, stops = [0, 0, 5, 7, 2999, 3000, 100], [3000, 0, 2000, 8, 3000, 3000, 101]
    assert checksums(data, starts, stops).tolist() == [
        zlib.crc32(data[a:b]) for a, b in zip(starts, stops, strict=True)
    ]


def test_other_bytes_and_other_versions_are_not_taken_for_a_torn_frame() -> None:
    with pytest.raises(WireError, match="Byte 0 of the log: The bytes begin with b'# no', not with b'FCEF'"):
        split(b"# not a log, but something else")
    newer = bytearray(LOG)
    newer[LAST + 4] = 2
    with pytest.raises(WireError, match=f"Byte {LAST} of the log: The frame is of version 2"):
        split(bytes(newer))
