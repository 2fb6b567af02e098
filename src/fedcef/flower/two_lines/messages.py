"""What stands in the place of a model in Flower's messages: an order down and an answer up, as bytes.

    order   4   magic "FCTD"; u8 version 1        answer  4   magic "FCTU"; u8 version 1
            8   run                                       8   run
            8   order                                     8   order
            u32 since, and u32 version: of the            8   client
                replica before and after                  u8  kind: 1 result, 2 done, 3 need
            8   digest of the replica's history           8   memory that the work began with
            u8  known: whether the next is for            …   lengths u32, u32, u64
                the one client behind this node           …   text: JSON, mostly empty
            8   memory of this client that counts         …   kept: arrays that travel as they are
            …   lengths u32, u32, u64                     …   frames
            …   text: JSON, empty where nothing is new    u32 CRC-32 of everything before
            …   kept: arrays that travel as they are
            …   frames
            u32 CRC-32 of everything before

All little endian; frames are those of docs/wire.md.  Many frames of an order lie in an Array of their own beside it,
which is the same for all nodes, so that Flower stores it once; the text then has their digest.  A model that is sent as
it is lies there as Flower knows it.  An order whose text says `who` brings no model: it asks a node that may be an old
one under a new id who it is.  The answer is a need, as that of every node which cannot follow: it names the client, and
in its text the version that it has.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import Array, ArrayRecord

from fedcef.wire import WireError
from fedcef.wire.envelope import Envelope

STYPE = "fedcef.two_lines.v1"
"""What Flower calls the kind of bytes in an Array."""
BLOB, APART = "fedcef", "fedcef.frames"
"""The name of that Array, and of one with its frames."""
LONG = 2**16
"""Frames of more bytes lie apart."""
SHORT = 8
"""The length of names and digests."""
NOTHING = bytes(SHORT)
"""The memory of a client that has sent nothing yet."""
FROM_NOTHING = 2**32 - 1
"""The version before the first."""
RESULT, DONE, NEED = range(1, 4)

_ORDER = Envelope("order", b"FCTD", 1, fields="8s8sII8sB8s", lengths="IIQ")
_ANSWER = Envelope("answer", b"FCTU", 1, fields="8s8s8sB8s", lengths="IIQ")
_MOST_TEXT = 2**24


@dataclass(frozen=True)
class Order:
    """Bring your replica up to date, and work with it."""

    run: bytes
    order: bytes
    since: int  # FROM_NOTHING: the frames are enough for who has no replica
    version: int
    digest: bytes
    known: bool
    memory: bytes
    text: dict[str, Any]
    kept: bytes | memoryview
    frames: bytes | memoryview

    def encode(self) -> bytes:
        """As it is sent."""
        head = (self.run, self.order, self.since, self.version, self.digest, self.known, self.memory)
        return _ORDER.pack(head, [_text(self.text), bytes(self.kept), bytes(self.frames)])

    @classmethod
    def decode(cls, data: bytes) -> Order:
        """An order, or a `WireError`; its frames are not looked into."""
        (run, order, since, version, digest, known, memory), (text, kept, frames) = _ORDER.unpack(data)
        return cls(run, order, since, version, digest, bool(known), memory, _json(text), kept, frames)


@dataclass(frozen=True)
class Answer:
    """What became of an order."""

    run: bytes
    order: bytes
    client: bytes
    kind: int
    memory: bytes = NOTHING
    text: dict[str, Any] | None = None
    kept: bytes | memoryview = b""
    frames: bytes | memoryview = b""

    def encode(self) -> bytes:
        """As it is sent."""
        head = (self.run, self.order, self.client, self.kind, self.memory)
        return _ANSWER.pack(head, [_text(self.text), bytes(self.kept), bytes(self.frames)])

    @classmethod
    def decode(cls, data: bytes, limit: int) -> Answer:
        """An answer of at most `limit` bytes, or a `WireError`; its frames are not looked into."""
        if len(data) > limit:
            raise WireError(f"The answer has {len(data)} bytes; at most {limit} are taken.")
        (run, order, client, kind, memory), (text, kept, frames) = _ANSWER.unpack(data)
        if kind not in (RESULT, DONE, NEED):
            raise WireError(f"The answer is of kind {kind}; there are 1 (result), 2 (done) and 3 (need).")
        return cls(run, order, client, kind, memory, _json(text), kept, frames)

    def memory_after(self) -> bytes:
        """The client's memory once this result counts: by what it began with and by all that was sent."""
        return memory_after(self.memory, self.order, self.kept, self.frames)


def memory_after(before: bytes, *sent: bytes | memoryview) -> bytes:
    """A short name for the state that follows another by what was sent."""
    state = hashlib.blake2b(before, digest_size=SHORT)
    for part in sent:
        state.update(part)
    return state.digest()


def as_array(data: bytes) -> Array:
    """Bytes as Flower carries them."""
    return Array(dtype="uint8", shape=(len(data),), stype=STYPE, data=data)


def as_record(blob: bytes) -> ArrayRecord:
    """Bytes in the place of a model."""
    return ArrayRecord({BLOB: as_array(blob)})


def blob_in(record: ArrayRecord, name: str = BLOB) -> bytes | None:
    """The bytes in a record, or None if it holds arrays as Flower knows them."""
    array = record.get(name)
    return array.data if array is not None and array.stype == STYPE else None


def order_in(record: ArrayRecord) -> Order | None:
    """The order in a record with the frames that lie beside it, or None if there is none."""
    blob = blob_in(record)
    if blob is None:
        return None
    order = Order.decode(blob)
    if "apart" not in order.text:
        return order
    frames = blob_in(record, APART) or b""
    if digest_of(frames) != order.text["apart"]:
        raise WireError("The frames that lie beside the order are not those that it means.")
    return replace(order, frames=frames)


def digest_of(frames: bytes) -> str:
    """By which an order knows the frames that lie beside it."""
    return hashlib.blake2b(frames, digest_size=2 * SHORT).hexdigest()


def _text(value: dict[str, Any] | None) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() if value else b""


def _json(text: memoryview) -> dict[str, Any]:
    if not text:
        return {}
    if len(text) > _MOST_TEXT:
        raise WireError(f"A text of {len(text)} bytes is too long; at most {_MOST_TEXT} are taken.")
    try:
        value = json.loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise WireError(f"The text cannot be read: {error}.") from None
    if not isinstance(value, dict):
        raise WireError("The text is not a JSON object.")
    return value
