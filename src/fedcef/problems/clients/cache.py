"""What was read of clients, kept up to a limit of bytes, and read ahead by a thread."""

from __future__ import annotations

import atexit
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from fedcef.problems.client_data import Samples

_caches: WeakSet[Cache] = WeakSet()
_PATIENCE_S = 1.0  # how long the end of the program waits for a client that is being read


class Cache:
    """Reads clients, and keeps those used last.

    A client is read once even if the thread that reads ahead and someone who needs it now come to it together.  What
    cannot be read ahead is left to whoever needs it: that one reads it again, and hears of the error.
    """

    def __init__(self, read: Callable[[int], Samples], limit: int) -> None:
        """`read` is called from two threads, never twice at a time for one client; `limit` is in bytes."""
        self._read, self._limit = read, limit
        self._empty()

    def _empty(self) -> None:
        self._kept: OrderedDict[int, Samples] = OrderedDict()
        self._bytes = 0
        self._reading: dict[int, Future[Samples]] = {}
        self._lock = threading.Lock()
        self._wanted: list[int] = []
        self._ahead = 0  # bytes of those that were named last
        self._thread: threading.Thread | None = None
        _caches.add(self)

    def __getstate__(self) -> dict[str, Any]:
        """For a copy or another process: how to read, and nothing that was read."""
        return {"_read": self._read, "_limit": self._limit}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._empty()

    def get(self, client: int) -> Samples:
        """A client's samples, read now if they are not at hand."""
        with self._lock:
            if client in self._kept:
                self._kept.move_to_end(client)
                return self._kept[client]
            reading = self._reading.get(client)
            if reading is None:
                mine = self._reading[client] = Future()
        if reading is None:
            return self._read_now(client, mine)
        try:
            return reading.result()
        except Exception:
            return self.get(client)

    def _read_now(self, client: int, mine: Future[Samples]) -> Samples:
        try:
            samples = self._read(client)
        except BaseException as error:
            with self._lock:
                del self._reading[client]
            mine.set_exception(error)
            raise
        with self._lock:
            self._keep(client, samples)
            del self._reading[client]
        mine.set_result(samples)
        return samples

    def _keep(self, client: int, samples: Samples) -> None:
        if samples.nbytes > self._limit:
            return
        self._kept[client] = samples
        self._bytes += samples.nbytes
        while self._bytes > self._limit:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.nbytes

    def read_ahead(self, clients: Iterable[int]) -> None:
        """Read these in a thread, as many as half the limit holds, in place of those that were named before."""
        with self._lock:
            self._wanted, self._ahead = [client for client in clients if client not in self._kept][::-1], 0
            if self._wanted and self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name="fedcef-read-ahead")
                self._thread.start()

    def _work(self) -> None:
        """The thread: until nothing is wanted any more."""
        while True:
            with self._lock:
                if not self._wanted or 2 * self._ahead > self._limit:
                    self._thread = None
                    return
                client = self._wanted.pop()
            with suppress(BaseException):  # whoever needs this client reads it again, and hears of it
                self._ahead += self.get(client).nbytes

    def stop(self) -> None:
        """Read nothing ahead any more, and wait a moment for what is being read."""
        with self._lock:
            self._wanted, thread = [], self._thread
        if thread is not None:
            thread.join(_PATIENCE_S)


@atexit.register
def _stop_all() -> None:
    for cache in list(_caches):
        cache.stop()
