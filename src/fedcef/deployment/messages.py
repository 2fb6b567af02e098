"""What travels between server and clients, as bytes: an order down, and one of three replies up.

    4    magic "FCOR"                     20   stamp: u32 round, 0xFFFFFFFF for none, and 16 digest
    u8   version 1                        16   hash of the replica
    u8   kind: 1 order, 2 result,         u64  length of the body
         3 need, 4 refusal                …    body
    16   run                              u32  CRC-32 of everything before
    u32  round
    u32  client

All little endian, as in docs/wire.md, whose frames make up the bodies of orders and results.  A stamp names a client's
state.  In an order it is the one that the server's sums hold; in a result, the one that the work began with.  The round
of a need is how many rounds the client's replica has seen.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from typing import Any

from fedcef.deployment.identity import RunId
from fedcef.wire import WireError, split
from fedcef.wire.envelope import Envelope


class MessageError(WireError):
    """Bytes that are no order or no reply."""


MESSAGE = Envelope("message", b"FCOR", 1, fields="B16sIII16s16s", lengths="Q", error=MessageError)
ORDER, RESULT, NEED, REFUSAL = range(1, 5)
NONE = 2**32 - 1
HASH = 16
REASON_BYTES = 300

_WORK = struct.Struct("<Qf")  # samples, seconds
OVERHEAD = MESSAGE.overhead
"""What an order takes beyond its frames."""
RESULT_OVERHEAD = OVERHEAD + _WORK.size
"""What a result takes beyond its frame."""


@dataclass(frozen=True)
class Stamp:
    """A client's state: the round of the last message in it, and a digest of all messages that led to it.

    The round alone would not do.  A client that loses its state in the middle of a round does that round again from a
    new one; of the two messages the server may have accepted either, and the client must know which.
    """

    round: int
    digest: bytes  # 16

    @classmethod
    def after(cls, base: Stamp | None, round_: int, frame: bytes) -> Stamp:
        """The state after a message, by the state before it."""
        before = b"" if base is None else base.digest
        return cls(round_, hashlib.blake2b(before + frame, digest_size=HASH).digest())

    @classmethod
    def from_json(cls, value: list[Any]) -> Stamp:
        """The stamp that `to_json` wrote."""
        return cls(value[0], bytes.fromhex(value[1]))

    def to_json(self) -> list[int | str]:
        """For the header of a checkpoint."""
        return [self.round, self.digest.hex()]


@dataclass(frozen=True)
class Header:
    """Whose message it is, and about which round."""

    run: RunId
    round: int
    client: int


@dataclass(frozen=True)
class Order(Header):
    """Do this round.  The frames bring the client's replica up to it: what it missed of the log, or a snapshot."""

    last: Stamp | None  # after the last message that was accepted from this client
    replica: bytes  # the hash that it then has
    frames: tuple[bytes, ...]

    def encode(self) -> bytes:
        """As it is sent."""
        return _encode(ORDER, self, self.last, self.replica, b"".join(self.frames))


@dataclass(frozen=True)
class Result(Header):
    """The round's work."""

    base: Stamp | None  # the state that the work began with; None: a new one
    replica: bytes
    samples: int
    seconds: float
    frame: bytes  # the up-message

    @property
    def stamp(self) -> Stamp:
        """The state that the client has if this is accepted."""
        return Stamp.after(self.base, self.round, self.frame)

    def encode(self) -> bytes:
        """As it is sent."""
        return _encode(RESULT, self, self.base, self.replica, _WORK.pack(self.samples, self.seconds) + self.frame)


@dataclass(frozen=True)
class Need(Header):
    """The frames do not reach back far enough."""

    have: int | None  # rounds that the client's replica has seen; None: only a snapshot will do

    def encode(self) -> bytes:
        """As it is sent."""
        seen = None if self.have is None else Stamp(self.have, bytes(HASH))
        return _encode(NEED, self, seen, bytes(HASH), b"")


@dataclass(frozen=True)
class Refusal(Header):
    """The client cannot or will not do this round."""

    reason: str

    def encode(self) -> bytes:
        """As it is sent."""
        return _encode(REFUSAL, self, None, bytes(HASH), self.reason.encode()[:REASON_BYTES])


Reply = Result | Need | Refusal
"""What a client may answer."""


def decode_order(data: bytes) -> Order:
    """An order, or a `MessageError`; its frames are told apart and not looked into."""
    kind, header, last, replica, body = _decode(data)
    if kind != ORDER:
        raise MessageError(f"A message of kind {kind} came down; only orders (1) do.")
    frames, good = split(body)
    if good != len(body):
        raise MessageError(f"The order's frames end at byte {good} of {len(body)}.")
    return Order(header.run, header.round, header.client, last, replica, tuple(bytes(f) for f in frames))


def decode_reply(data: bytes, limit: int) -> Reply:
    """A reply of at most `limit` bytes; a result's frame is not looked into."""
    if len(data) > limit:
        raise MessageError(f"The reply has {len(data)} bytes; at most {limit} are taken.")
    kind, header, last, replica, body = _decode(data)
    who = (header.run, header.round, header.client)
    if kind == RESULT:
        if len(body) < _WORK.size:
            raise MessageError(f"The result has a body of {len(body)} bytes; it begins with {_WORK.size}.")
        samples, seconds = _WORK.unpack_from(body)
        if not math.isfinite(seconds):
            raise MessageError(f"The result took {seconds} seconds.")
        return Result(*who, last, replica, samples, seconds, bytes(body[_WORK.size :]))
    if kind == NEED and not body:
        return Need(*who, None if last is None else last.round)
    if kind == REFUSAL and len(body) <= REASON_BYTES:
        return Refusal(*who, on_one_line(bytes(body).decode("utf-8", "replace")))
    raise MessageError(f"A message of kind {kind} with {len(body)} bytes came up; it is no reply.")


def decode_result(data: bytes) -> Result:
    """A result that was accepted before, from the server's own disk."""
    reply = decode_reply(data, len(data))
    if not isinstance(reply, Result):
        raise MessageError("An accepted reply is no result.")
    return reply


def on_one_line(text: str) -> str:
    """What a client says, of bounded length and without anything that a terminal obeys."""
    return "".join(c if c.isprintable() else " " for c in text[:REASON_BYTES])


def _encode(kind: int, header: Header, stamp: Stamp | None, replica: bytes, body: bytes) -> bytes:
    state = (NONE, bytes(HASH)) if stamp is None else (stamp.round, stamp.digest)
    return MESSAGE.pack((kind, bytes(header.run), header.round, header.client, *state, replica), [body])


def _decode(data: bytes) -> tuple[int, Header, Stamp | None, bytes, memoryview]:
    (kind, run, round_, client, *state, replica), (body,) = MESSAGE.unpack(data)
    stamp = None if state[0] == NONE else Stamp(*state)
    return kind, Header(RunId.read(run), round_, client), stamp, replica, body
