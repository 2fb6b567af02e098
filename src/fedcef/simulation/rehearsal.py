"""A round that is tried out with made-up vectors, to learn what its messages are and how long."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm
from fedcef.algorithms.received import Received
from fedcef.compressors import Compressor
from fedcef.core.rng import Key
from fedcef.wire import Dense, Payload, frame_nbytes


@dataclass(frozen=True, eq=False)
class Noting(Compressor):
    """Compresses as another one does, and remembers what it was given and what it made."""

    inner: Compressor
    given: list[Tensor] = field(default_factory=list)
    made: list[Payload] = field(default_factory=list)

    def compress(self, x: Tensor, key: Key) -> Payload:
        """What the other one makes of x."""
        self.given.append(x)
        self.made.append(self.inner.compress(x, key))
        return self.made[-1]

    def contraction(self, dim: int) -> float | None:
        """The other one's."""
        return self.inner.contraction(dim)


def plain_parts(algorithm: Algorithm, z0: Tensor, key: Key) -> dict[str, int]:
    """The parts of a client's message and how long each is, 0 if the compressor made it; found without data."""
    noting = Noting(algorithm.compressor)
    trial = replace(algorithm, local_steps=1, compressor=noting)
    one = Key(key.shared, key.own.flatten()[0])
    up, _ = trial.local(trial.replica_init(z0), trial.client_init(z0), lambda x, k: torch.zeros_like(x), one)
    made = {id(payload) for payload in noting.made}
    return {name: 0 if id(payload) in made else payload.dim for name, payload in up.items()}


def rehearsed_bytes(algorithm: Algorithm, vectors: Tensor, key: Key, num_clients: int, z0: Tensor) -> int:
    """The bytes of a round in which the clients of a cohort send these vectors, (S, p)."""
    up: dict[str, Payload] = {
        name: Dense(vectors[:, :plain]) if plain else algorithm.compressor.compress(vectors, key)
        for name, plain in plain_parts(algorithm, z0, key).items()
    }
    received = Received.of(up, key.shared, share=len(vectors) / num_clients)
    down, _ = algorithm.server_step(algorithm.server_init(z0), algorithm.replica_init(z0), received)
    # of a cohort of S, each was away for N/S rounds in the mean and gets as many messages, or one that stands alone
    receivers = len(vectors) if algorithm.stands_alone else num_clients
    return int(frame_nbytes(up).sum() + receivers * frame_nbytes(down))
