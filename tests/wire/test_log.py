"""A log of frames one after the other, whole, torn at its end or damaged."""

from __future__ import annotations

import pytest
import torch

from fedcef.wire import Dense, FrameKind, WireError, encode, read_frames, split

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


@pytest.mark.parametrize(
    "tail", [b"\0", bytes(4096), FRAMES[0][:25] + bytes(len(FRAMES[0]) - 25), FRAMES[0][:19], FRAMES[3][:25] + b"FCEF"]
)
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


def test_a_zeroed_frame_before_whole_ones_is_an_error() -> None:
    with pytest.raises(WireError, match=f"Byte {len(LOG)} of the log: the frame is damaged, and others follow"):
        split(LOG + bytes(512) + LOG)


def test_other_bytes_and_other_versions_are_not_taken_for_a_torn_frame() -> None:
    with pytest.raises(WireError, match="Byte 0 of the log: The bytes begin with b'# no', not with b'FCEF'"):
        split(b"# not a log, but something else")
    newer = bytearray(LOG)
    newer[LAST + 4] = 2
    with pytest.raises(WireError, match=f"Byte {LAST} of the log: The frame is of version 2"):
        split(bytes(newer))
