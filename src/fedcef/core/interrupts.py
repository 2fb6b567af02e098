"""Ctrl-C between steps, not within them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold an interrupt back until the block has ended.

    Only the main thread can; elsewhere nothing is done, nor where interrupts are ignored, as in the workers of a sweep.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught and callable(before):  # as if it came now
        before(caught[0], None)
    elif caught:
        raise KeyboardInterrupt
