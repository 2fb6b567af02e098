"""A disk that kills, loses power, or is full, at any single step of writing."""

import errno
import os
from pathlib import Path

from fedcef.core.disk import Disk


class Killed(BaseException):
    """Stands for kill -9: nothing gets to clean up."""


class FaultyDisk(Disk):
    """A disk that stops at a given step from now on: by a kill, in the middle of a write, or because it is full.

    A process that is killed leaves what it has written.  When the power fails, only what was synced is left: the
    content of files, and that a file has its name.
    """

    def __init__(self) -> None:
        self.fault, self.left, self.steps = "", 0, 0
        self._unsynced: dict[Path, bytes] = {}  # what a file held when it was last synced
        self._renamed: dict[Path, bytes | None] = {}  # what was there before a file took the name

    def arm(self, fault: str, after: int = 0) -> None:
        self.fault, self.left = fault, after

    def disarm(self) -> bool:
        """Whether the fault never came."""
        unused, self.fault = bool(self.fault), ""
        return unused

    def write(self, file, data):
        path = Path(file.name)
        if path not in self._unsynced:
            self._unsynced[path] = path.read_bytes()
        if self._due():
            super().write(file, data[: len(data) // 2])
            self._fail()
        super().write(file, data)

    def sync(self, descriptor):
        if self._due():
            self._fail()
        synced = os.fstat(descriptor)
        self._unsynced = {path: before for path, before in self._unsynced.items() if not _is(synced, path)}
        self._renamed = {path: before for path, before in self._renamed.items() if not _is(synced, path.parent)}

    def rename(self, part, path):
        if self._due():
            self._fail()
        self._renamed.setdefault(path, path.read_bytes() if path.exists() else None)
        super().rename(part, path)
        if part in self._unsynced:
            self._unsynced[path] = self._unsynced.pop(part)

    def _due(self):
        self.steps += 1
        if not self.fault:
            return False
        self.left -= 1
        return self.left < 0

    def _fail(self):
        fault, self.fault = self.fault, ""
        if fault == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        if fault == "power":
            self._lose_power()
        raise Killed

    def _lose_power(self):
        for path, content in [*self._unsynced.items(), *self._renamed.items()]:
            if content is not None and path.parent.exists():
                path.write_bytes(content)
            else:
                path.unlink(missing_ok=True)
        self._unsynced, self._renamed = {}, {}


def _is(status, path):
    try:
        return os.path.samestat(status, path.stat())
    except FileNotFoundError:
        return False
