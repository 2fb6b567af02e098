"""Memory of large arrays on a CPU."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_KEPT = 1 << 30
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them


def keep_freed_memory() -> None:
    """Have the C library keep large blocks that are freed, up to 1 GiB, rather than give each back to the system.

    A thousand images make blocks of 100 MB in every layer of a network, and fresh pages for them took half of an
    evaluation.  It concerns the whole process, so the command line asks for it and the package does not.
    """
    with suppress(OSError, AttributeError):  # other systems than Linux with glibc do as they do
        libc = ctypes.CDLL("libc.so.6")
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            libc.mallopt(option, _KEPT)
