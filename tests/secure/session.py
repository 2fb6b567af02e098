"""All stages of a session in one process, with clients that leave between any two of them."""

from dataclasses import dataclass, field

import numpy as np

from fedcef.secure.client import ClientSession
from fedcef.secure.server import ServerSession
from fedcef.secure.stages import decode_stage

RUN = b"the run of tests"


@dataclass
class Played:
    server: ServerSession
    sessions: dict
    signing: dict = field(default_factory=dict)
    masked: dict = field(default_factory=dict)
    up: int = 0
    down: int = 0

    def stage(self, requests, gone):
        """Every request through its bytes to a client that is still there, and its reply likewise."""
        for client, request in requests.items():
            self.down += len(request)
            if client in gone:
                continue
            request = decode_stage(request)
            session = self.sessions.get(client) or ClientSession.begun(request)
            session = ClientSession.from_json(session.to_json())  # as from a disk
            self.sessions[client], reply = session.answer(request, self.signing.get(client))
            data = reply.encode()
            self.up += len(data)
            self.server.take(client, decode_stage(data))


def numbers_of(clients, count, bits, seed=0):
    random = np.random.default_rng(seed)
    return {client: random.integers(0, 1 << bits, count, dtype=np.uint32) for client in clients}


def play(numbers, bits, gone=((), (), (), ()), *, share=2 / 3, neighbours=0, signing=None):
    """A session with these numbers; `gone` says who leaves before their reply to each of the four stages."""
    out = [set().union(*gone[: stage + 1]) for stage in range(4)]
    server = ServerSession(RUN, 3, numbers, share=share, neighbours=neighbours)
    played = Played(server, {}, signing or {})
    played.stage(server.begin(), out[0])
    played.stage(server.share(), out[1])
    for client, attachment in server.attachments().items():
        played.down += len(attachment)
        if client not in out[2]:
            session = played.sessions[client].masking(decode_stage(attachment), share)
            played.sessions[client], played.masked[client] = session.mask(numbers[client], bits)
    played.stage(server.unmask(played.masked, bits), out[3])
    return played


def plain_sum(numbers, who, bits):
    total = np.zeros_like(next(iter(numbers.values())), dtype=np.uint64)
    for client in who:
        total += numbers[client]
    return (total % (1 << bits)).astype(np.uint32)
