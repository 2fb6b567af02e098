"""The server's own notes on every round since its last snapshot: which replies were accepted, byte for byte.

The round log tells everyone how the replica moved; it does not tell the server's own state, who took part, or what was
counted.  An entry here does.  It is written before the round is logged, and means nothing unless the round is.

    4 magic "FCJE";  u8 version;  u32 round;  u32 length of the note;  u64 length of the replies
    the note, JSON;  the replies, one after the other;  u32 CRC-32 of everything before

An up-message that was coded in a context, which later rounds do not have, follows its reply once more without.  Where
replies are masked, the first is followed by the unmasked total of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.deployment.messages import Result, decode_result
from fedcef.wire import WireError
from fedcef.wire.envelope import Envelope

ENTRY = Envelope("entry", b"FCJE", 1, fields="I", lengths="IQ")

Note = dict[str, Any]
"""What a round's entry says beside its replies."""


@dataclass(frozen=True)
class _Place:
    note: Note
    replies: dict[int, slice]  # by client: where the reply is in the file
    frames: dict[int, slice]  # by client: where its up-message is that needs no context, if the reply's does
    end: int  # of the entry


class AcceptedReplies:
    """The file of entries.  They stay on the disk; in memory is where each client's replies are."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path, self._disk = path, disk
        self._places: dict[int, _Place] = {}
        self._size = 0
        if path.exists():
            self._scan()
        else:
            disk.replace(path, b"")

    def append(self, round_: int, note: Note, replies: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Write down a round that is about to be logged: clients, replies, and up-messages that need no context.

        Such a message is empty where the reply's own needs none.
        """
        self.cut(round_)
        lengths = [[client, len(reply), *([len(frame)] if frame else [])] for client, reply, frame in replies]
        text = json.dumps({**note, "replies": lengths}).encode()
        entry = ENTRY.pack([round_], [text, b"".join(reply + frame for _, reply, frame in replies)])
        self._disk.append(self._path, entry, self._size)
        self._remember(entry)

    def cut(self, round_: int) -> None:
        """Forget this round and later ones, which were never logged; the file follows with the next entry."""
        self._places = {known: place for known, place in self._places.items() if known < round_}
        self._size = max((place.end for place in self._places.values()), default=0)

    def clear(self) -> None:
        """All entries are in a snapshot now."""
        self._disk.replace(self._path, b"")
        self._places, self._size = {}, 0

    def note(self, round_: int) -> Note | None:
        """What was noted on a round; None if the round has no entry."""
        place = self._places.get(round_)
        return place.note if place else None

    def end_since(self, round_: int) -> int:
        """The first round from this one on that has no entry."""
        while round_ in self._places:
            round_ += 1
        return round_

    def of_round(self, round_: int) -> list[bytes]:
        """The accepted replies of a round, in the order of the clients."""
        return [self._read(where) for where in self._places[round_].replies.values()]

    def total_of(self, round_: int) -> bytes:
        """The unmasked total of a round's messages, which follows the first reply; empty if there is none."""
        frames = list(self._places[round_].frames.values())
        return self._read(frames[0]) if frames else b""

    def of_client(self, client: int) -> Iterator[tuple[int, Result]]:
        """The rounds and results of one client, in the order of the rounds; their frames need no context."""
        for round_, place in sorted(self._places.items()):
            if client in place.replies:
                result = decode_result(self._read(place.replies[client]))
                frame = place.frames.get(client)
                yield round_, result if frame is None else replace(result, frame=self._read(frame))

    def clients(self) -> set[int]:
        """Those of whom there is a reply."""
        return {client for place in self._places.values() for client in place.replies}

    def _read(self, where: slice) -> bytes:
        with self._path.open("rb") as file:
            file.seek(where.start)
            return file.read(where.stop - where.start)

    def _remember(self, entry: bytes | memoryview) -> None:
        """Take in the entry that begins where the known ones end."""
        (round_,), (length, _) = ENTRY.read_head(entry)
        note: Note = json.loads(bytes(entry[ENTRY.head_size : ENTRY.head_size + length]))
        start = self._size + ENTRY.head_size + length
        replies: dict[int, slice] = {}
        frames: dict[int, slice] = {}
        for client, *lengths in note.pop("replies"):
            for where, length in zip((replies, frames), lengths, strict=False):
                where[client] = slice(start, start + length)
                start += length
        self._size += len(entry)
        self._places[round_] = _Place(note, replies, frames, self._size)

    def _scan(self) -> None:
        """Find the entries, up to one that an interrupted write left unfinished."""
        try:
            file = memoryview(self._path.read_bytes())
        except OSError as error:
            raise RunError(f"{self._path} cannot be read: {error.strerror or error}.") from None
        try:
            while (entry := ENTRY.first(file[self._size :])) is not None:
                self._remember(entry)
        except WireError:
            return  # whoever misses an entry says so
