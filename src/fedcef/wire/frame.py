"""A message in bytes: a frame names its parts, says how long it is and carries a checksum (docs/wire.md)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from fedcef.wire.context import Context
from fedcef.wire.envelope import Envelope
from fedcef.wire.forms.registry import read_payload
from fedcef.wire.names import encode_name, name_nbytes, read_name
from fedcef.wire.payload import Payload
from fedcef.wire.reader import Reader, WireError

FRAME = Envelope("frame", b"FCEF", 1, fields="BBI", lengths="Q")  # kind, number of parts, round; body


class FrameKind(IntEnum):
    """Who sends a frame to whom: a client to the server, the server to its clients, or a snapshot to a disk."""

    UP = 1
    DOWN = 2
    STATE = 3


@dataclass(frozen=True, eq=False)
class Frame:
    """A message that was decoded, and what its frame says about it."""

    kind: FrameKind
    round: int
    message: dict[str, Payload]


Contexts: TypeAlias = Mapping[str, Context]
"""What the receiver knows as well as the sender of some of a message's parts, by their names."""

NOTHING: Contexts = MappingProxyType({})


def encode(message: Mapping[str, Payload], kind: FrameKind, round_: int, contexts: Contexts = NOTHING) -> bytes:
    """The frame of a message of single payloads, its parts in the mapping's order.

    Parts that have a context are coded with it where that is shorter; only who has the same context can decode them.
    """
    if not 0 <= round_ < 2**32:
        raise WireError(f"Round {round_} cannot be sent; rounds are 0 to {2**32 - 1}.")
    if len(message) > 255:
        raise WireError(f"A message of {len(message)} parts cannot be sent; at most 255 are allowed.")
    body = b"".join(
        encode_name(name, "part") + payload.encode_given(contexts.get(name)) for name, payload in message.items()
    )
    return FRAME.pack([kind, len(message), round_], [body])


def decode(data: bytes | memoryview, *, max_dim: int = 2**31, contexts: Contexts = NOTHING) -> Frame:
    """The frame that `data` is, whole and nothing more; its payloads own their memory.

    Takes no more than 16 times the frame's length, 64 bytes for each entry that is sent, 4 KiB for each payload and
    1 MiB, whatever the bytes say, and 16 bytes for each entry of the contexts, which must be on the CPU.
    """
    (kind, parts, round_), (body,) = FRAME.unpack(data)
    if kind not in set(FrameKind):
        raise WireError(f"Unknown frame kind {kind}; allowed are 1 (up), 2 (down) and 3 (state).")
    reader = Reader(body)
    message: dict[str, Payload] = {}
    for _ in range(parts):
        name = read_name(reader, "part")
        if name in message:
            raise WireError(f"The frame has two parts named {name!r}; names must be distinct.")
        try:
            message[name] = read_payload(reader, max_dim, contexts.get(name))
        except WireError as error:
            raise WireError(f"Part {name!r}: {error}") from error.__cause__
    if reader.remaining:
        raise WireError(f"{reader.remaining} bytes are left over after the last of the frame's {parts} parts.")
    return Frame(FrameKind(kind), round_, message)


def head_of(frame: bytes | memoryview) -> tuple[int, int]:
    """The kind of a whole frame and its round; its parts are not looked at, so that no context is needed."""
    (kind, _, round_), _ = FRAME.unpack(frame)
    return int(kind), int(round_)


def frame_nbytes(message: Mapping[str, Payload], contexts: Contexts = NOTHING) -> Tensor:
    """The exact size of each frame of a stack of messages, int64 (...); parts broadcast against each other.

    A context may be one for the whole stack, (p,), or have one for each message, (..., p).
    """
    sizes = [name_nbytes(name) + payload.measured(contexts.get(name)) for name, payload in message.items()]
    return sum(sizes, start=torch.tensor(FRAME.overhead))


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
            frame = FRAME.first(view[good:])
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


def _contains_frame(log: memoryview) -> bool:
    """Whether there is a whole frame anywhere."""
    content = bytes(log)
    position = content.find(FRAME.magic)
    while position >= 0:
        with suppress(WireError):
            if FRAME.first(log[position:]) is not None:
                return True
        position = content.find(FRAME.magic, position + 1)
    return False
