"""A narrow link on this machine: a TCP proxy that lets through so many bit/s each way, after a delay.

    with Link("127.0.0.1:9092") as link:
        link.up.mbit, link.down.mbit, link.latency_ms = 1.0, 8.0, 20.0
        ...  # connect to link.address instead

All connections to a link share its two directions, as those of one machine do.  Bytes are read no faster than they may
go on, so that the sender is held back as by a full queue; if this process gets its turn too late for what was there to
be read, the link is none the slower for it.  What a proxy cannot show is TCP's own: handshakes and slow start happen on
loopback.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

PIECE = 4096  # bytes that are let through at once
AT_HAND_S = 0.002  # what was there already is read within this time
LATEST_S = 1.0  # by which this process may be late


@dataclass
class Direction:
    """One way of a link."""

    mbit: float = 0.0
    """Per second; 0 = no limit."""
    free_at: float = 0.0
    """When all that was taken in before has left."""
    passed: int = 0
    """Bytes so far."""

    def reserve(self, now: float, size: int, was_idle: bool) -> float:
        """When this many bytes, taken in now, have left; they follow the last ones at once if they were there."""
        self.passed += size
        if not self.mbit:
            return now
        late = not was_idle and now - self.free_at < LATEST_S
        self.free_at = (self.free_at if late else max(now, self.free_at)) + 8e-6 * size / self.mbit
        return max(now, self.free_at)


class Link:
    """A proxy on a port of its own, in a thread of its own."""

    def __init__(self, target: str) -> None:
        self.host, port = target.split(":")
        self.port = int(port)
        self.up, self.down = Direction(), Direction()
        self.latency_ms = 0.0
        self.address = ""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Link:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        for task in (left := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self.host, self.port)
        except OSError:  # nobody is there
            writer.close()
            return
        await asyncio.gather(
            self._pass_on(reader, back, self.up), self._pass_on(there, writer, self.down), return_exceptions=True
        )

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.ensure_future(self._deliver(queue, writer))
        try:
            asked = self._loop.time()
            while data := await reader.read(PIECE):
                now = self._loop.time()
                leaves = way.reserve(now, len(data), was_idle=now - asked > AT_HAND_S)
                queue.put_nowait((leaves + self.latency_ms / 1e3, data))
                await asyncio.sleep(leaves - self._loop.time())
                asked = self._loop.time()
        finally:
            queue.put_nowait((self._loop.time() + self.latency_ms / 1e3, b""))
            await delivering

    async def _deliver(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            at, data = await queue.get()
            await asyncio.sleep(at - self._loop.time())
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()
