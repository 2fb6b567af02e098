"""Who opens which file for writing: seen by an audit hook, so that nothing can be written past it."""

import os
import sys
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

from .faulty_disk import FaultyDisk

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_watches: list["Watch"] = []


class Watch:
    """What was opened for writing within a folder while it was watched: names, and by which method of a disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.past: set[str] = set()
        """Files that were written without the disk that was handed over."""
        self.by: dict[str, set[str]] = {}
        """Methods of that disk, by the names of files."""
        self.method = ""

    def see(self, event: str, args: tuple) -> None:
        paths = [args[0]] if event == "open" else list(args[:2])
        if event == "open" and not _writes(args[1], args[2]):
            return
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike) and Path(os.fsdecode(path)).is_relative_to(self.folder):
                name = Path(os.fsdecode(path)).name
                if self.method:
                    self.by.setdefault(name, set()).add(self.method)
                else:
                    self.past.add(name)


def _writes(mode: str | None, flags: int) -> bool:
    return bool(set(mode) & set("wax+")) if mode else bool(flags & WRITING)


def _hook(event: str, args: tuple) -> None:
    if _watches and event in ("open", "os.rename", "os.truncate", "os.link", "os.symlink"):
        for watch in _watches:
            watch.see(event, args)


sys.addaudithook(_hook)  # there is no way to take it back; without a watch it does nothing


@contextmanager
def watched(folder: Path):
    """Watch a folder within the block."""
    watch = Watch(folder)
    _watches.append(watch)
    try:
        yield watch
    finally:
        _watches.remove(watch)


class WatchedDisk(FaultyDisk):
    """A disk that says which of its methods is at work."""


def _telling(method):
    @wraps(method)
    def told(self, *args, **kwargs):
        before = [watch.method for watch in _watches]
        for watch in _watches:
            watch.method = method.__name__
        try:
            return method(self, *args, **kwargs)
        finally:
            for watch, was in zip(_watches, before, strict=True):
                watch.method = was

    return told


for _name in ("replace", "replace_by", "append", "add", "keep", "remove"):
    setattr(WatchedDisk, _name, _telling(getattr(FaultyDisk, _name)))
