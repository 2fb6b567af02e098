"""Secure aggregation: what masks, keys and shares cost, in bytes and in seconds of computing.

    python benchmarks/secure.py [--entries 100000] [--clients 10 50 100] [--neighbours 0 20] [--left 0.1]

All stages of one round, in one process and without a network: S clients whose messages have so many numbers, of which a
share leaves before its message is sent.  Seconds are those of one core, for one client and for the server; bytes are
those of one client, up and down, beside the masked message.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from fedcef.compressors.grid import Grid
from fedcef.secure.client import ClientSession
from fedcef.secure.server import ServerSession
from fedcef.secure.stages import decode_stage


def measure(clients: int, entries: int, neighbours: int, left: float, bits: int = 8) -> dict[str, float]:
    """One round; the sum is checked against the plain one."""
    width = Grid(range=1.0, bits=bits, clients=clients).width
    random = np.random.default_rng(0)
    gone = set(range(0, clients, round(1 / left))) if left else set()
    numbers = {c: random.integers(0, 1 << bits, entries, dtype=np.uint32) for c in range(clients)}
    server = ServerSession(bytes(16), 0, range(clients), neighbours=neighbours)
    sessions: dict[int, ClientSession] = {}
    seconds, up, down, servers = 0.0, 0, 0, 0.0

    def stage(requests: dict[int, bytes]) -> None:
        nonlocal seconds, up, down
        for client, data in requests.items():
            down += len(data)
            began = time.process_time()
            request = decode_stage(data)
            session = sessions.get(client) or ClientSession.begun(request)
            sessions[client], reply = session.answer(request)
            answer = reply.encode()
            seconds += time.process_time() - began
            up += len(answer)
            server.take(client, decode_stage(answer))

    stage(server.begin())
    stage(server.share())
    masked = {}
    for client, data in server.attachments().items():
        down += len(data)
        if client not in gone:
            began = time.process_time()
            ready = sessions[client].masking(decode_stage(data))
            sessions[client], masked[client] = ready.mask(numbers[client], width)
            seconds += time.process_time() - began
    stage(server.unmask(masked, width))
    began = time.process_time()
    total = server.total()
    servers = time.process_time() - began
    assert np.array_equal(total, sum(numbers[c] for c in masked) % (1 << width))
    return {
        "clients": clients,
        "neighbours": neighbours,
        "gone": len(gone),
        "bits": width,
        "message": -(-entries * width // 8),
        "up": up / clients,
        "down": down / clients,
        "client_s": seconds / clients,
        "server_s": servers,
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 50, 100])
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 20])
    parser.add_argument("--left", type=float, nargs="+", default=[0.0, 0.1])
    options = parser.parse_args()
    print("| S | neighbours | leave | bits | masked kB | keys and shares up, kB | down, kB | client s | server s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for clients in options.clients:
        for neighbours in options.neighbours:
            if neighbours >= clients - 1:
                continue
            for left in options.left:
                row = measure(clients, options.entries, neighbours, left)
                cells = (f"{clients}", f"{neighbours or 'all'}", f"{row['gone']}", f"{row['bits']}")
                sizes = (f"{row[name] / 1e3:.2f}" for name in ("message", "up", "down"))
                print(
                    "|",
                    " | ".join([*cells, *sizes, f"{row['client_s']:.2f}", f"{row['server_s']:.1f}"]),
                    "|",
                    flush=True,
                )


if __name__ == "__main__":
    main()
