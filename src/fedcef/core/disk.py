"""Files that survive a kill: a write is on the disk, whole, before anything relies on it.

All writing goes through three small steps (`write`, `sync`, `rename`), so that a test can stop at any of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from fedcef.core.errors import RunError


class Disk:
    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """Write beside the file, then take its name: at any moment there is the old file or the new one."""
        part = path.with_name(path.name + ".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                self.write(file, data)
                self.sync(file.fileno())
            self.rename(part, path)
            self._sync_folder(path.parent)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise RunError(f"{path} cannot be written: {error.strerror}; what it held before is still there.") from None

    def append(self, path: Path, data: bytes, at: int) -> None:
        """Write at the end of what is known to be whole; bytes beyond it are of an interrupted write."""
        try:
            with path.open("r+b") as file:
                file.seek(at)
                file.truncate()
                try:
                    self.write(file, data)
                    self.sync(file.fileno())
                except OSError:
                    file.truncate(at)
                    raise
        except OSError as error:
            raise RunError(f"{path} cannot be written: {error.strerror}; what it held before is still there.") from None

    def add(self, path: Path, data: bytes) -> None:
        """Add a line to a file that may lose its last ones; durable after `keep`."""
        try:
            with path.open("ab") as file:
                at = file.tell()
                try:
                    self.write(file, data)
                except OSError:
                    file.truncate(at)
                    raise
        except OSError as error:
            raise RunError(f"{path} cannot be written: {error.strerror}.") from None

    def keep(self, path: Path) -> None:
        """Make durable what was added."""
        try:
            with path.open("rb") as file:
                self.sync(file.fileno())
        except OSError as error:
            raise RunError(f"{path} cannot be made durable: {error.strerror}.") from None

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        file.write(data)
        file.flush()

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, part: Path, path: Path) -> None:
        part.replace(path)

    def _sync_folder(self, folder: Path) -> None:
        """A new name is durable once its folder is."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)
