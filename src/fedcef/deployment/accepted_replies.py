"""The server's own notes on every round since its last snapshot: which replies were accepted, byte for byte.

The round log tells everyone how the replica moved; it does not tell the server's own state, who took part, or what was
counted.  An entry here does.  It is written before the round is logged, and means nothing unless the round is.

    4 magic "FCJE";  u8 version;  u32 round;  u32 length of the note;  u64 length of the replies
    the note, JSON;  the replies, one after the other;  u32 CRC-32 of everything before
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcef.core.disk import Disk

MAGIC, VERSION = b"FCJE", 1
_HEADER = struct.Struct("<4sBIIQ")
_CRC = struct.Struct("<I")

Note = dict[str, Any]


@dataclass(frozen=True)
class _Place:
    note: Note
    replies: dict[int, slice]  # by client: where the reply is in the file


class Journal:
    """Entries stay on the disk; in memory is where each client's replies are."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path, self._disk = path, disk
        self._places: dict[int, _Place] = {}
        self._ends: dict[int, int] = {}
        self._size = 0
        if path.exists():
            self._scan(path.read_bytes())
        else:
            disk.replace(path, b"")

    def append(self, round_: int, note: Note, replies: Sequence[tuple[int, bytes]]) -> None:
        """Write down a round that is about to be logged."""
        self.cut(round_)
        text = json.dumps({**note, "replies": [[client, len(reply)] for client, reply in replies]}).encode()
        body = b"".join(reply for _, reply in replies)
        content = _HEADER.pack(MAGIC, VERSION, round_, len(text), len(body)) + text + body
        self._disk.append(self._path, content + _CRC.pack(zlib.crc32(content)), self._size)
        self._remember(round_, json.loads(text), self._size + _HEADER.size + len(text), len(content) + _CRC.size)

    def cut(self, round_: int) -> None:
        """Forget this round and later ones, which were never logged; the file follows with the next entry."""
        self._places = {known: place for known, place in self._places.items() if known < round_}
        self._ends = {known: end for known, end in self._ends.items() if known < round_}
        self._size = max(self._ends.values(), default=0)

    def clear(self) -> None:
        """All entries are in a snapshot now."""
        self._disk.replace(self._path, b"")
        self._places, self._ends, self._size = {}, {}, 0

    def note(self, round_: int) -> Note | None:
        place = self._places.get(round_)
        return place.note if place else None

    def replies(self, round_: int) -> list[bytes]:
        """The accepted replies of a round, in the order of the clients."""
        return [self._read(where) for where in self._places[round_].replies.values()]

    def clients(self) -> set[int]:
        return {client for place in self._places.values() for client in place.replies}

    def of_client(self, client: int) -> Iterator[tuple[int, bytes]]:
        """The rounds and replies of one client, in the order of the rounds."""
        for round_, place in sorted(self._places.items()):
            if client in place.replies:
                yield round_, self._read(place.replies[client])

    def _read(self, where: slice) -> bytes:
        with self._path.open("rb") as file:
            file.seek(where.start)
            return file.read(where.stop - where.start)

    def _remember(self, round_: int, note: Note, start: int, size: int) -> None:
        replies: dict[int, slice] = {}
        for client, length in note.pop("replies"):
            replies[client] = slice(start, start + length)
            start += length
        self._places[round_] = _Place(note, replies)
        self._size += size
        self._ends[round_] = self._size

    def _scan(self, data: bytes) -> None:
        """Find the entries, up to one that an interrupted write left unfinished."""
        view = memoryview(data)
        while len(view) - self._size >= _HEADER.size + _CRC.size:
            magic, version, round_, text, body = _HEADER.unpack_from(view, self._size)
            size = _HEADER.size + text + body + _CRC.size
            entry = view[self._size : self._size + size]
            if (magic, version) != (MAGIC, VERSION) or len(entry) < size:
                return
            if _CRC.unpack(entry[-_CRC.size :]) != (zlib.crc32(entry[: -_CRC.size]),):
                return
            note = json.loads(bytes(entry[_HEADER.size : _HEADER.size + text]))
            self._remember(round_, note, self._size + _HEADER.size + text, size)
