"""A disk that tells of every step of writing before it is done; whoever listens may kill the process or raise."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from fedcef.deployment import PrivateDisk


class WatchedDisk(PrivateDisk):
    def __init__(self, at: Callable[[str], None]) -> None:
        self._at, self._doing = at, ""

    def replace(self, path: Path, data: bytes) -> None:
        self._doing = f"replace {_label(path)}"
        super().replace(path, data)

    def append(self, path: Path, data: bytes, at: int) -> None:
        self._doing = f"append {_label(path)}"
        super().append(path, data, at)

    def add(self, path: Path, data: bytes) -> None:
        self._doing = f"add {_label(path)}"
        super().add(path, data)

    def write(self, file: BinaryIO, data: bytes) -> None:
        half = len(data) // 2
        super().write(file, data[:half])
        self._at(f"{self._doing}, half written")
        super().write(file, data[half:])

    def sync(self, descriptor: int) -> None:
        self._at(f"{self._doing}, written")
        super().sync(descriptor)

    def rename(self, part: Path, path: Path) -> None:
        self._at(f"{self._doing}, synced")
        super().rename(part, path)
        self._at(f"{self._doing}, renamed")


def no_space() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def _label(path: Path) -> str:
    """A file's name; sums and states have many."""
    return {".sum": "sums", ".state": "state"}.get(path.suffix, path.name)
