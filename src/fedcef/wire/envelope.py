"""The envelope of everything that is sent or kept: what it is, how long it is, and a checksum of all of it.

    …    magic, which names the format
    u8   version
    …    fields: numbers and digests of a fixed size
    …    lengths: of each part
    …    parts: bytes
    u32  CRC-32 of everything before

All little endian, nothing between.  Frames and checkpoints are envelopes, and so are two formats of a deployment.  An
entry in its file of accepted replies has one field, the round, and two parts:

    >>> ENTRY = Envelope("entry", b"FCJE", 1, fields="I", lengths="IQ")
    >>> data = ENTRY.pack([7], [b'{"replies": [[3, 5]]}', b"reply"])
    >>> (round_,), (note, replies) = ENTRY.unpack(data)
    >>> round_, bytes(note), bytes(replies)
    (7, b'{"replies": [[3, 5]]}', b'reply')

In a file of entries, the next whole one is found without unpacking it.  There is none where a write was interrupted:

    >>> file = memoryview(data + data[:30])
    >>> entry = ENTRY.first(file)
    >>> len(entry) == len(data), ENTRY.first(file[len(entry):])
    (True, None)

A message between server and client has seven fields (kind, run, round, client, the round and digest of a stamp, the
hash of a replica) and one part:

    >>> MESSAGE = Envelope("message", b"FCOR", 1, fields="B16sIII16s16s", lengths="Q")
    >>> fields = (2, b"sixteen bytes...", 7, 3, 2**32 - 1, bytes(16), bytes(16))
    >>> data = MESSAGE.pack(fields, [b"body"])
    >>> (kind, run, round_, client, *stamp, replica), (body,) = MESSAGE.unpack(data)
    >>> kind, round_, client, bytes(body), len(data) == MESSAGE.overhead + len(body)
    (2, 7, 3, b'body', True)
    >>> MESSAGE.unpack(data[:-1])
    Traceback (most recent call last):
    fedcef.wire.reader.WireError: The message is cut off: its header says 82 bytes, there are 81.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from fedcef.core.errors import FedcefError
from fedcef.wire.reader import WireError

CHECKSUM_SIZE = 4


def checksum(data: bytes | memoryview) -> bytes:
    """The CRC-32 of `data` as it is written down."""
    return struct.pack("<I", zlib.crc32(data))


class Head(NamedTuple):
    """What an envelope's first bytes say."""

    fields: tuple[Any, ...]
    lengths: tuple[int, ...]


class Opened(NamedTuple):
    """What was in an envelope; the parts are views of its bytes."""

    fields: tuple[Any, ...]
    parts: tuple[memoryview, ...]


@dataclass(frozen=True)
class Envelope:
    """One format: its name in sentences, its magic and version, and what it holds.

    Fields and lengths are given as in the module `struct`, without a byte order.
    """

    name: str
    magic: bytes
    version: int
    fields: str
    lengths: str
    error: type[FedcefError] = WireError
    """What is raised for bytes that are no such envelope."""
    head_checked: bool = False
    """Whether a checksum of everything before follows the first part, too, so that it can be read without the rest."""

    @cached_property
    def _header(self) -> struct.Struct:
        return struct.Struct(f"<{len(self.magic)}sB{self.fields}{self.lengths}")

    @cached_property
    def head_size(self) -> int:
        """Bytes before the first part."""
        return self._header.size

    @cached_property
    def overhead(self) -> int:
        """Bytes beside those of the parts."""
        return self.head_size + CHECKSUM_SIZE * (1 + self.head_checked)

    def pack(self, fields: Sequence[Any], parts: Sequence[bytes]) -> bytes:
        """The whole envelope."""
        pieces = [self.head(fields, [len(part) for part in parts]), *parts]
        if self.head_checked:
            pieces.insert(2, checksum(b"".join(pieces[:2])))
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        return b"".join([*pieces, struct.pack("<I", crc)])

    def head(self, fields: Sequence[Any], lengths: Sequence[int]) -> bytes:
        """The bytes before the first part, for whoever puts the parts and checksums in place without a copy."""
        return self._header.pack(self.magic, self.version, *fields, *lengths)

    def unpack(self, data: bytes | memoryview) -> Opened:
        """Fields and parts of the envelope that `data` is, whole and nothing more; nothing is copied."""
        view = _octets(data)
        fields, lengths = self.read_head(view)
        size = self.overhead + sum(lengths)
        if len(view) != size:
            what = "cut off" if len(view) < size else "followed by other bytes"
            raise self.error(f"The {self.name} is {what}: its header says {size} bytes, there are {len(view)}.")
        if not _checksum_holds(view):
            raise self.error(f"The checksum does not fit the {self.name}'s content; the bytes were damaged.")
        parts, start = [], self.head_size
        for length in lengths:
            parts.append(view[start : start + length])
            start += length + CHECKSUM_SIZE * (self.head_checked and len(parts) == 1)
        return Opened(fields, tuple(parts))

    def read_head(self, data: bytes | memoryview) -> Head:
        """Fields and lengths that `data` begins with; whether what follows is whole, only `unpack` tells."""
        if len(data) < self.head_size:
            raise self.error(
                f"{self.head_size} bytes are needed for the {self.name} header, but only {len(data)} are left."
            )
        magic, version, *values = self._header.unpack_from(data)
        if magic != self.magic:
            raise self.error(f"The bytes begin with {magic!r}, not with {self.magic!r}; this is not a {self.name}.")
        if version != self.version:
            raise self.error(f"The {self.name} is of version {version}; only version {self.version} can be read.")
        split = len(values) - len(self.lengths)
        return Head(tuple(values[:split]), tuple(values[split:]))

    def first(self, data: bytes | memoryview) -> memoryview | None:
        """The envelope that `data` begins with, unopened; None if an interrupted write left it short, damaged or zero.

        Bytes that begin as no such envelope does, not even in part, are an error.
        """
        view = _octets(data)
        if len(view) < self.head_size or not any(view[: self.head_size]):
            return None
        size = self.overhead + sum(self.read_head(view).lengths)
        return view[:size] if size <= len(view) and _checksum_holds(view[:size]) else None


def _octets(data: bytes | memoryview) -> memoryview:
    view = memoryview(data)
    return view if view.format == "B" else view.cast("B")


def _checksum_holds(view: memoryview) -> bool:
    return bool(checksum(view[:-CHECKSUM_SIZE]) == view[-CHECKSUM_SIZE:])
