"""A file of rows that only grows: what was written stays until nobody can go back to it.

    client_states.0.bin   records, each an envelope (wire/envelope.py) with a client's number and row

A row that is written again is added at the end; the file up to some length is everything that was known at some
moment.  So a snapshot keeps a mark, the file's number and length, and costs what was written since the last one.
Whoever goes back cuts off what follows.  When more than half of a file is out of date, the rows that are still good
are written to the next one; the old one stays while one of the last snapshots may point to it.

Rows are read by position, not by mapping the file into memory: the system keeps the pages that are in use either way,
but they are not counted as this process's own, and a full disk is an error instead of a signal.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.wire.checkpoint import DamagedError
from fedcef.wire.envelope import Envelope

_MARKS = 6  # the last of them may be on their way to the disk: a GPU is up to four rounds ahead of what is written
RECORD = Envelope("row", b"FCRW", 1, fields="Q", lengths="Q", error=DamagedError)
"""One client's row; the field is the client's number."""


class Place(NamedTuple):
    """Where a record lies in the file."""

    start: int
    size: int


class RowLog:
    """One of a folder's files of rows.

    Args:
        folder: where the files are; made when the first row is written.
        disk: how they are made durable.
        owner: what the folder lives as long as, if it is to go with its files.
    """

    def __init__(self, folder: Path, disk: Disk | None = None, owner: object = None) -> None:
        self._owner = owner
        self.folder, self._disk = folder, disk or Disk()
        self.number, self.length = 0, 0
        self._marked: deque[int] = deque(maxlen=_MARKS)
        self._file: int | None = None

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._path(self.number)

    def numbered(self, number: int) -> RowLog:
        """Another one of the files."""
        log = RowLog(self.folder, self._disk)
        log.number, log._marked, log._owner = number, self._marked, self._owner
        return log

    def following(self) -> RowLog:
        """The next file, empty."""
        log = self.numbered(self.number + 1)
        log.path.unlink(missing_ok=True)  # of an interrupted attempt
        return log

    def tidy(self) -> None:
        """Remove the files that no mark points to, but for the one before, which older states may have rows in."""
        for other in self._others():
            if other < self.number - 1 and other not in self._marked:
                self._path(other).unlink(missing_ok=True)

    def add(self, rows: Sequence[tuple[int, bytes]]) -> list[Place]:
        """Write rows at the end, durable after `keep`; says where each of them lies."""
        records = [RECORD.pack([client], [row]) for client, row in rows]
        places, at = [], self.length
        for record in records:
            places.append(Place(at, len(record)))
            at += len(record)
        block = memoryview(b"".join(records))
        try:
            written = 0
            while written < len(block):
                written += os.pwrite(self._open(), block[written:], self.length + written)
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror or error}; make room for it.") from None
        self.length = at
        return places

    def read(self, place: Place, client: int) -> bytes:
        """A row; a damaged one is refused."""
        try:
            data = os.pread(self._open(), place.size, place.start)
            (whose,), (row,) = RECORD.unpack(data)
        except (DamagedError, OSError) as error:
            raise RunError(f"The state of client {client} in {self.path} cannot be read: {error}") from None
        if whose != client:
            raise RunError(f"{self.path} is damaged: the state of client {whose} lies where client {client}'s was.")
        return bytes(row)

    def keep(self) -> tuple[int, int]:
        """Make all rows durable, and return the mark of this moment: the file's number and length."""
        if self.length:
            os.ftruncate(self._open(), self.length)
            self._disk.sync(self._open())
        self._marked.append(self.number)
        return self.number, self.length

    def go_back(self, number: int, length: int) -> Iterator[tuple[int, Place]]:
        """Have the file as it was at a mark; says for each record whose it is and where, in the order of writing."""
        self._close()
        self.number, self.length = number, length
        if length and (not self.path.is_file() or self.path.stat().st_size < length):
            raise ValueError(f"{self.path} is missing or shorter than the snapshot says; restore it from a copy")
        if self.path.exists():
            os.truncate(self.path, length)
        for other in self._others():
            if other > number:  # of a step that no snapshot points to
                self._path(other).unlink()
        return self._records()

    def _records(self) -> Iterator[tuple[int, Place]]:
        at = 0
        while at < self.length:
            head = os.pread(self._open(), RECORD.head_size, at)
            try:
                (client,), (size,) = RECORD.read_head(head)
            except DamagedError as error:
                raise RunError(f"{self.path} is damaged at byte {at}: {error}") from None
            place = Place(at, RECORD.overhead + size)
            yield client, place
            at += place.size

    def _path(self, number: int) -> Path:
        return self.folder / f"client_states.{number}.bin"

    def _others(self) -> list[int]:
        names = [path.name.split(".") for path in self.folder.glob("client_states.*.bin")]
        return [int(name[1]) for name in names if name[1].isdigit()]

    def _open(self) -> int:
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self._close()
