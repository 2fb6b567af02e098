"""A message in bytes: a frame names its parts, says how long it is and carries a checksum (docs/wire.md)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from fedcef.wire.errors import WireError
from fedcef.wire.forms.registry import read_payload
from fedcef.wire.payload import Payload
from fedcef.wire.reader import Reader

MAGIC = b"FCEF"
VERSION = 1

_HEADER = struct.Struct("<4sBBBIQ")  # magic, version, kind, parts, round, bytes of the body
_CHECKSUM = struct.Struct("<I")
_NAME_LENGTH = struct.Struct("<B")
_OVERHEAD = _HEADER.size + _CHECKSUM.size


class FrameKind(IntEnum):
    UP = 1
    DOWN = 2
    STATE = 3


@dataclass(frozen=True, eq=False)
class Frame:
    kind: FrameKind
    round: int
    message: dict[str, Payload]


class _Header(NamedTuple):
    kind: int
    parts: int
    round: int
    frame_size: int


def encode(message: Mapping[str, Payload], kind: FrameKind, round_: int) -> bytes:
    """The frame of a message of single payloads, its parts in the mapping's order."""
    if not 0 <= round_ < 2**32:
        raise WireError(f"Round {round_} cannot be sent; rounds are 0 to {2**32 - 1}.")
    if len(message) > 255:
        raise WireError(f"A message of {len(message)} parts cannot be sent; at most 255 are allowed.")
    body = b"".join(_encode_name(name) + payload.encode() for name, payload in message.items())
    content = _HEADER.pack(MAGIC, VERSION, kind, len(message), round_, len(body)) + body
    return content + _CHECKSUM.pack(zlib.crc32(content))


def decode(data: bytes | memoryview, *, max_dim: int = 2**31) -> Frame:
    """The frame that `data` is, whole and nothing more; its payloads own their memory.

    Takes no more than 16 times the frame's length, 64 bytes for each entry that is sent, 4 KiB for each payload and
    1 MiB, whatever the bytes say.
    """
    view = memoryview(data).cast("B")
    header = _read_header(view)
    if len(view) != header.frame_size:
        what = "cut off" if len(view) < header.frame_size else "followed by other bytes"
        raise WireError(f"The frame is {what}: its header says {header.frame_size} bytes, there are {len(view)}.")
    if not _checksum_holds(view):
        raise WireError("The checksum does not fit the frame's content; the bytes were damaged.")
    if header.kind not in set(FrameKind):
        raise WireError(f"Unknown frame kind {header.kind}; allowed are 1 (up), 2 (down) and 3 (state).")

    reader = Reader(view[_HEADER.size : -_CHECKSUM.size])
    message: dict[str, Payload] = {}
    for _ in range(header.parts):
        name = _read_name(reader)
        if name in message:
            raise WireError(f"The frame has two parts named {name!r}; names must be distinct.")
        try:
            message[name] = read_payload(reader, max_dim)
        except WireError as error:
            raise WireError(f"Part {name!r}: {error}") from None
    if reader.remaining:
        raise WireError(f"{reader.remaining} bytes are left over after the last of the frame's {header.parts} parts.")
    return Frame(FrameKind(header.kind), header.round, message)


def frame_nbytes(message: Mapping[str, Payload]) -> Tensor:
    """The exact size of each frame of a stack of messages, int64 (...); parts broadcast against each other."""
    sizes = [_NAME_LENGTH.size + len(name.encode()) + payload.nbytes() for name, payload in message.items()]
    return sum(sizes, start=torch.tensor(_OVERHEAD))


def frame_paper_nbytes(message: Mapping[str, Payload]) -> Tensor:
    """The size by the paper's rule, int64 (...): payloads only."""
    return sum((payload.paper_nbytes() for payload in message.values()), start=torch.tensor(0))


def split(log: bytes | memoryview) -> tuple[list[memoryview], int]:
    """The frames of a log, undecoded, and the number of bytes that they take.

    A write that was interrupted leaves a last frame that is too short, fails its checksum or is all zero:
    the log ends before it.  If a whole frame follows, the log is damaged, and that is an error: cutting it
    there would lose rounds.
    """
    view = memoryview(log).cast("B")
    frames: list[memoryview] = []
    good = 0
    while good < len(view):
        try:
            frame = _first_frame(view[good:])
        except WireError as error:
            raise WireError(f"Byte {good} of the log: {error}") from None
        if frame is None:
            if _contains_frame(view[good + 1 :]):
                raise WireError(f"Byte {good} of the log: the frame is damaged, and others follow it.")
            break
        frames.append(frame)
        good += len(frame)
    return frames, good


def read_frames(log: bytes | memoryview, *, max_dim: int = 2**31) -> tuple[list[Frame], int]:
    """The frames of a log up to a torn last one, decoded, and the number of bytes that they take."""
    frames, good = split(log)
    return [decode(frame, max_dim=max_dim) for frame in frames], good


def _read_header(view: memoryview) -> _Header:
    fields = Reader(view).unpack(_HEADER, "the frame header")
    magic, version, kind, parts, round_, body_size = fields
    if magic != MAGIC:
        raise WireError(f"The bytes begin with {magic!r}, not with {MAGIC!r}; this is not a frame.")
    if version != VERSION:
        raise WireError(f"The frame is of version {version}; only version {VERSION} can be read.")
    return _Header(kind, parts, round_, _OVERHEAD + body_size)


def _checksum_holds(frame: memoryview) -> bool:
    (declared,) = _CHECKSUM.unpack(frame[-_CHECKSUM.size :])
    return bool(zlib.crc32(frame[: -_CHECKSUM.size]) == declared)


def _first_frame(log: memoryview) -> memoryview | None:
    """The frame that a log begins with, or nothing if it is not whole."""
    if len(log) < _HEADER.size or not any(log[: _HEADER.size]):
        return None
    size = _read_header(log).frame_size
    return log[:size] if size <= len(log) and _checksum_holds(log[:size]) else None


def _contains_frame(log: memoryview) -> bool:
    content = bytes(log)
    position = content.find(MAGIC)
    while position >= 0:
        with suppress(WireError):
            if _first_frame(log[position:]) is not None:
                return True
        position = content.find(MAGIC, position + 1)
    return False


def _encode_name(name: str) -> bytes:
    encoded = name.encode()
    if not 1 <= len(encoded) <= 255:
        raise WireError(f"Part name {name!r} has {len(encoded)} bytes; 1 to 255 are allowed.")
    return _NAME_LENGTH.pack(len(encoded)) + encoded


def _read_name(reader: Reader) -> str:
    (length,) = reader.unpack(_NAME_LENGTH, "a part's name length")
    if length == 0:
        raise WireError("A part has an empty name; 1 to 255 bytes are allowed.")
    encoded = bytes(reader.take(length, "a part's name"))
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise WireError(f"The part name {encoded!r} is not valid UTF-8.") from None
