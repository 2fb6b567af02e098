"""A lock that nobody has to clean up: the system lets go of it when its process ends, however that ends.

The file says by whom it is held.  It is removed by its holder; one that a killed process left behind locks nothing.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedcef.core.errors import RunError

_WAIT_S = 0.01
_BUSY = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # beyond the content, which others must be able to read
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(
    path: Path, *, busy: str = "This is being worked on", wait: bool = False, mode: int = 0o777
) -> Iterator[None]:
    """Hold a lock within the block.

    Args:
        path: the lock's file; its folder is made if it is missing.
        busy: how the sentence begins that refuses a lock which another process holds.
        wait: wait for it instead.
        mode: the rights of a folder that is made.
    """
    try:
        path.parent.mkdir(mode, parents=True, exist_ok=True)
        descriptor = _hold(path, busy, wait)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}; choose another folder.") from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no file that is open
            path.unlink()
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock; nothing is written."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try(descriptor)
    finally:
        os.close(descriptor)


def _hold(path: Path, busy: str, wait: bool) -> int:
    """The descriptor of the lock's file, once it is ours."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            taken = _try(descriptor)
            if taken and _is_at(path, descriptor):
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
            if not taken and not wait:
                holder = os.read(descriptor, 20).decode("ascii", "replace")
                by = f"process {holder}" if holder.isdecimal() else "another process"
                raise RunError(f"{busy} by {by}; wait until it has ended, or end it.")
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not taken:
            time.sleep(_WAIT_S)


def _try(descriptor: int) -> bool:
    """Whether the lock could be taken; where a file system has no locks, everyone gets it."""
    try:
        _take(descriptor)
    except OSError as error:
        return error.errno not in _BUSY
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether this is still the file of that name: its last holder may have removed it since it was opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
