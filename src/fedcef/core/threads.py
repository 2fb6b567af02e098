"""How many threads torch uses.

Threads that wait for each other at the end of every small operation cost more than they save, and all of them stall
when another process takes a core.  So small vectors get one thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_SMALL = 1 << 20  # entries; an operation on fewer takes well below a millisecond


@contextmanager
def single_thread(when: bool = True) -> Iterator[None]:
    """One torch thread, which also takes sums in the same order on any machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if when else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_small(entries: int) -> bool:
    """Whether operations on so many numbers are better done by one thread."""
    return entries <= _SMALL


def cores() -> int:
    """How many cores this process may use; of those that it shares with other processes of the same run, its part."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, here // _processes)


def share_cores(processes: int) -> None:
    """Say that so many processes on this machine do the work of one run."""
    global _processes
    _processes = max(1, processes)


_processes = 1
