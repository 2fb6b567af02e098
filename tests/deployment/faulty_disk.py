"""A disk that kills, or is full, at any single step of writing."""

import errno

from fedcef.core.disk import Disk


class Killed(BaseException):
    """Stands for kill -9: nothing gets to clean up."""


class FaultyDisk(Disk):
    """A disk that stops at a given step from now on: by a kill, in the middle of a write, or because it is full."""

    def __init__(self) -> None:
        self.fault, self.left, self.steps = "", 0, 0

    def arm(self, fault: str, after: int = 0) -> None:
        self.fault, self.left = fault, after

    def disarm(self) -> bool:
        """Whether the fault never came."""
        unused, self.fault = bool(self.fault), ""
        return unused

    def write(self, file, data):
        if self._due():
            super().write(file, data[: len(data) // 2])
            self._fail()
        super().write(file, data)

    def sync(self, descriptor):
        if self._due():
            self._fail()  # a process that is killed leaves what it has written, so there is no need to sync here

    def rename(self, part, path):
        if self._due():
            self._fail()
        super().rename(part, path)

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
        raise Killed
