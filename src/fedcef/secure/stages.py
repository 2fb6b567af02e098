"""What travels between server and clients beside masked messages, as bytes.

    4    magic "FCSA"                       u32  round
    u8   version 1                          u32  client
    u8   stage                              u16  threshold
    16   run                                u16  number of entries n
    16   session                            u16  bytes of each entry m
    n times:  u32 client, m bytes
    u16  length of a remark, and the remark: why a client refuses
    u32  CRC-32 of everything before

A session is one attempt at a round; its name is drawn by the server.  All little endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from fedcef.core.errors import FedcefError

_HEAD = struct.Struct("<4sBB16s16sIIHHH")
_NUMBER, _LENGTH = struct.Struct("<I"), struct.Struct("<H")
_MAGIC, _VERSION = b"FCSA", 1
REMARK_BYTES = 300


class StageError(FedcefError):
    """Bytes that are no message of a stage."""


class Stage(IntEnum):
    """What a message is about, down and up."""

    REFUSED = 0
    """Up: the client does not go on, and says why."""
    KEYS = 1
    """Down: begin.  Up: the client's two public keys, under its own number."""
    SHARES = 2
    """Down: the neighbours' public keys.  Up: for each neighbour its shares, sealed."""
    MASKED = 3
    """Down, beside an order: the sealed shares that came for this client.  The masked message is the order's reply."""
    UNMASK = 4
    """Down: 1 for each neighbour whose message is in the sum, 0 for the others.  Up: a share for each."""


@dataclass(frozen=True)
class StageMessage:
    """One message of a stage."""

    stage: Stage
    run: bytes  # 16
    session: bytes  # 16
    round: int
    client: int
    entries: Mapping[int, bytes] = field(default_factory=dict)  # by client; all of the same length
    threshold: int = 0
    remark: str = ""

    def encode(self) -> bytes:
        """As it is sent."""
        sizes = {len(entry) for entry in self.entries.values()} or {0}
        if len(sizes) > 1:
            raise StageError(f"The entries of a stage have one length, not {sorted(sizes)}.")
        head = (self.run, self.session, self.round, self.client, self.threshold, len(self.entries), min(sizes))
        remark = self.remark.encode()[:REMARK_BYTES]
        data = _HEAD.pack(_MAGIC, _VERSION, self.stage, *head)
        data += b"".join(_NUMBER.pack(who) + entry for who, entry in self.entries.items())
        data += _LENGTH.pack(len(remark)) + remark
        return data + _NUMBER.pack(zlib.crc32(data))


def decode_stage(data: bytes) -> StageMessage:
    """The message that these bytes are; anything else raises a `StageError`."""
    if len(data) < _HEAD.size + _LENGTH.size + _NUMBER.size or data[:4] != _MAGIC:
        raise StageError("These bytes are no message of secure aggregation.")
    _, version, stage, run, session, round_, client, threshold, count, size = _HEAD.unpack_from(data)
    end = _HEAD.size + count * (_NUMBER.size + size)
    if version != _VERSION or stage not in list(Stage):
        raise StageError(f"Stage {stage} of version {version} is unknown; versions up to {_VERSION} are.")
    if len(data) < end + _LENGTH.size + _NUMBER.size:
        raise StageError(f"The message has {len(data)} bytes; its {count} entries alone take more.")
    (length,) = _LENGTH.unpack_from(data, end)
    if len(data) != end + _LENGTH.size + length + _NUMBER.size or length > REMARK_BYTES:
        raise StageError(f"The message has {len(data)} bytes, which is not what its lengths say.")
    if _NUMBER.unpack_from(data, len(data) - _NUMBER.size)[0] != zlib.crc32(data[: -_NUMBER.size]):
        raise StageError("The message is damaged: its checksum does not fit.")
    entries: dict[int, bytes] = {}
    for at in range(_HEAD.size, end, _NUMBER.size + size):
        (who,) = _NUMBER.unpack_from(data, at)
        if who in entries:
            raise StageError(f"The message has two entries for client {who}.")
        entries[who] = data[at + _NUMBER.size : at + _NUMBER.size + size]
    text = data[end + _LENGTH.size : -_NUMBER.size].decode("utf-8", "replace")
    remark = "".join(c if c.isprintable() else " " for c in text)
    return StageMessage(Stage(stage), run, session, round_, client, entries, threshold, remark)
