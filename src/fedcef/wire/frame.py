"""A message in bytes: a frame names its parts, says how long it is and carries a checksum (docs/wire.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from fedcef.wire.context import Context
from fedcef.wire.envelope import Envelope
from fedcef.wire.forms.registry import read_payload
from fedcef.wire.forms.relay import MAX_RELAYED
from fedcef.wire.names import encode_name, name_nbytes, read_name
from fedcef.wire.payload import RELAY, Payload, read_head
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


class OtherPartsError(WireError):
    """A frame whose vectors are not those that the receiver expects, by their names and lengths."""


def encode(message: Mapping[str, Payload], kind: FrameKind, round_: int, contexts: Contexts = NOTHING) -> bytes:
    """The frame of a message of single payloads, its parts in the mapping's order.

    Parts that have a context are coded with it where that is shorter; only who has the same context can decode them.
    """
    if not 0 <= round_ < 2**32:
        raise WireError(f"Round {round_} cannot be sent; rounds are 0 to {2**32 - 1}.")
    if len(message) > 255:
        raise WireError(f"A message of {len(message)} parts cannot be sent; at most 255 are allowed.")
    body = b"".join(
        encode_name(name, "part") + _encoded(payload, kind, contexts.get(name)) for name, payload in message.items()
    )
    return FRAME.pack([kind, len(message), round_], [body])


def _encoded(payload: Payload, kind: FrameKind, context: Context | None) -> bytes:
    encoded = payload.encode_given(None if kind == FrameKind.STATE else context)
    if encoded[0] == RELAY and kind != FrameKind.DOWN:
        raise WireError(f"A relay cannot be sent in a frame of kind {kind.name.lower()}; relays only come down.")
    return encoded


def decode(
    data: bytes | memoryview,
    *,
    max_dim: int = 2**31,
    contexts: Contexts = NOTHING,
    max_relayed: int = MAX_RELAYED,
    expected: Mapping[str, int] | None = None,
) -> Frame:
    """The frame that `data` is, whole and nothing more; its payloads own their memory.

    Takes no more than 16 times the frame's length, 64 bytes for each entry that is sent, 4 KiB for each payload and
    1 MiB, whatever the bytes say, and 16 bytes for each entry of the contexts, which must be on the CPU.  The time goes
    with the frame's length and its number of payloads (docs/wire.md).

    Args:
        data: Of anyone's making.
        max_dim: The longest vector that is accepted.
        contexts: What the sender had, too, if it sent something that needs them; a snapshot never does.
        max_relayed: The most payloads that are accepted in a relay.
        expected: The lengths of all vectors by their names, where they are known: nothing else is read, and
            an `OtherPartsError` is raised.
    """
    (kind, parts, round_), (body,) = FRAME.unpack(data)
    if kind not in set(FrameKind):
        raise WireError(f"Unknown frame kind {kind}; allowed are 1 (up), 2 (down) and 3 (state).")
    if expected is not None and parts != len(expected):
        raise OtherPartsError(f"The frame has {parts} vectors; expected are {_listed(expected)}.")
    reader = Reader(body)
    message: dict[str, Payload] = {}
    for _ in range(parts):
        name = read_name(reader, "part")
        if name in message:
            raise WireError(f"The frame has two parts named {name!r}; names must be distinct.")
        context = None if kind == FrameKind.STATE else contexts.get(name)
        try:
            head = read_head(reader, max_dim)
            if expected is not None and expected.get(name) != head.dim:
                raise OtherPartsError(f"Part {name!r} has {head.dim} entries; expected are {_listed(expected)}.")
            message[name] = read_payload(reader, head, max_relayed if kind == FrameKind.DOWN else 0, context)
        except OtherPartsError:
            raise
        except WireError as error:
            raise WireError(f"Part {name!r}: {error}") from error.__cause__
    if reader.remaining:
        raise WireError(f"{reader.remaining} bytes are left over after the last of the frame's {parts} parts.")
    return Frame(FrameKind(kind), round_, message)


def _listed(expected: Mapping[str, int]) -> str:
    return ", ".join(f"{name!r} of {dim}" for name, dim in expected.items()) or "none"


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
