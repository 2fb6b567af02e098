"""A log: frames of successive rounds one after the other, of which the last may be torn (docs/wire.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fedcef.wire.checksums import checksums
from fedcef.wire.envelope import CHECKSUM_SIZE
from fedcef.wire.frame import FRAME, Frame, decode
from fedcef.wire.reader import WireError

_BEGINS = re.compile(re.escape(FRAME.magic + bytes([FRAME.version])))


def split(log: bytes | memoryview) -> tuple[list[memoryview], int]:
    """The frames of a log, undecoded, and the number of bytes that they take.

    A write that was interrupted leaves a last frame that is too short, fails its checksum or is all zero: the log ends
    before it.  If a whole frame of a later round follows, the log is damaged, and that is an error: cutting it there
    would lose rounds.  Every byte is read a few times at most.
    """
    view = memoryview(log).cast("B")
    frames: list[memoryview] = []
    good = 0
    while good < len(view):
        try:
            frame = FRAME.first(view[good:])
        except WireError as error:
            raise WireError(f"Byte {good} of the log: {error}") from None
        if frame is None:
            if _goes_on(view, good, _round(frames[-1]) + 1 if frames else None):
                raise WireError(f"Byte {good} of the log: the frame is damaged, and others follow it.")
            break
        frames.append(frame)
        good += len(frame)
    return frames, good


def read_frames(log: bytes | memoryview) -> tuple[list[Frame], int]:
    """The frames of a log up to a torn last one, decoded, and the number of bytes that they take."""
    frames, good = split(log)
    return [decode(frame) for frame in frames], good


def _goes_on(log: memoryview, at: int, round_: int | None) -> bool:
    """Whether a whole frame follows the one at `at`, which is none, or no more; it should have been of this round.

    Bytes that look like a frame may well be part of the torn one.  So a frame counts only where that one should have
    ended, or if its round is one to which the log can have come by then.
    """
    declared = _declared_end(log, at)
    if round_ is None and declared is not None:
        round_ = _round(log[at:])
    found = [
        (start, stop)
        for start, stop in _candidates(log, at)
        if start == declared or round_ is None or 0 < _round(log[start:]) - round_ <= (start - at) // FRAME.overhead
    ]
    if not found:
        return False
    stops = [stop - CHECKSUM_SIZE for _, stop in found]
    written = [int.from_bytes(log[stop : stop + CHECKSUM_SIZE], "little") for stop in stops]
    return bool((checksums(log, [start for start, _ in found], stops) == written).any())


def _candidates(log: memoryview, at: int) -> Iterator[tuple[int, int]]:
    """Where after `at` bytes begin as a frame does, and where it would end, if the log reaches that far."""
    for match in _BEGINS.finditer(log, at + 1):
        end = _declared_end(log, match.start())
        if end is not None and end <= len(log):
            yield match.start(), end


def _declared_end(log: memoryview, at: int) -> int | None:
    """Where the frame at a place ends by its header, if there is one."""
    if len(log) - at < FRAME.head_size or not any(log[at : at + FRAME.head_size]):
        return None
    return at + FRAME.overhead + sum(FRAME.read_head(log[at:]).lengths)


def _round(frame: memoryview) -> int:
    """The round in a header."""
    return int(FRAME.read_head(frame).fields[2])
