"""Files that survive a kill: a write is on the disk, whole, before anything relies on it.

All writing goes through three small steps (`write`, `sync`, `rename`), so that a test can stop at any of them.  What
the disk refuses becomes a `RunError` of one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from fedcef.core.errors import RunError

_WINDOWS = os.name == "nt"
_UNHARMED = "what it held before is still there"


class Disk:
    """The one way to write a file."""

    file_mode, dir_mode = 0o666, 0o777
    """Rights of new files and folders, as far as the umask leaves them."""

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """Write beside the file, then take its name: at any moment there is the old file or the new one."""

        def write(part: Path) -> None:
            part.unlink(missing_ok=True)  # one that a kill left may have other rights
            with self._open(part, "wb") as file:
                self.write(file, data)
                self.sync(file.fileno())

        self._put(path, write)

    def replace_by(self, path: Path, write: Callable[[Path], object]) -> None:
        """The same for a library that insists on writing the file itself: `write` is called with where to."""

        def write_and_sync(part: Path) -> None:
            write(part)
            part.chmod(part.stat().st_mode & self.file_mode)
            self._sync_file(part)

        self._put(path, write_and_sync)

    def append(self, path: Path, data: bytes, at: int) -> None:
        """Write at the end of what is known to be whole; bytes beyond it are of an interrupted write."""
        with _explained(path, _UNHARMED), path.open("r+b") as file:
            file.seek(at)
            file.truncate()
            try:
                self.write(file, data)
                self.sync(file.fileno())
            except OSError:
                file.truncate(at)
                raise

    def add(self, path: Path, data: bytes) -> None:
        """Add a line to a file that may lose its last ones; durable after `keep`."""
        with _explained(path, _UNHARMED), self._open(path, "ab") as file:
            at = file.tell()
            try:
                self.write(file, data)
            except OSError:
                file.truncate(at)
                raise

    def keep(self, path: Path) -> None:
        """Make durable what was added."""
        with _explained(path, "its last lines may be lost if the machine fails"):
            self._sync_file(path)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there, for good."""
        with _explained(path, _UNHARMED):
            path.unlink(missing_ok=True)
            self._sync_folder(path.parent)

    def keep_names(self, folder: Path) -> None:
        """Make durable that files in a folder have their names: whoever gave them one may have been killed before."""
        with _explained(folder, "files that were just written may be lost if the machine fails"):
            if folder.is_dir():
                self._sync_folder(folder)

    # the steps

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        """Hand the data to the system."""
        file.write(data)
        file.flush()

    def sync(self, descriptor: int) -> None:
        """Wait until the disk has what the system was handed."""
        os.fsync(descriptor)

    def rename(self, part: Path, path: Path) -> None:
        """Let a whole file take its name."""
        part.replace(path)

    def _put(self, path: Path, write: Callable[[Path], object]) -> None:
        part = path.with_name(path.name + ".part")
        with _explained(path, _UNHARMED):
            try:
                path.parent.mkdir(self.dir_mode, parents=True, exist_ok=True)
                write(part)
                self.rename(part, path)
                self._sync_folder(path.parent)
            except Exception:
                part.unlink(missing_ok=True)
                raise

    def _open(self, path: Path, mode: Literal["wb", "ab"]) -> BinaryIO:
        return open(path, mode, opener=lambda name, flags: os.open(name, flags, self.file_mode))

    def _sync_file(self, path: Path) -> None:
        with path.open("r+b") as file:  # Windows syncs nothing that is open for reading only
            self.sync(file.fileno())

    def _sync_folder(self, folder: Path) -> None:
        """A new name is durable once its folder is; Windows opens no folders, and has no need to."""
        if _WINDOWS:
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)


class PrivateDisk(Disk):
    """A disk whose new files and folders are their owner's alone, whatever the umask: they tell of clients' data."""

    file_mode, dir_mode = 0o600, 0o700


@contextmanager
def _explained(path: Path, consequence: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}; {consequence}.") from None
