"""Small quadratic clients with exact gradients, and two engines around the contract.

`simulate` stacks all clients, as the simulator does.  `deploy` keeps server and clients apart: single vectors, every
message through its bytes, a replica of its own for each participant.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, islice

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, Message, Received, State
from fedcef.core.rng import Key, round_key
from fedcef.wire import FrameKind, decode, encode


@dataclass(frozen=True)
class Quadratics:
    """f_i(x) = x'A_i x / 2 - b_i'x, with different A_i and b_i."""

    a: Tensor  # (N, p, p)
    b: Tensor  # (N, p)

    @classmethod
    def random(cls, clients: int = 6, dim: int = 20, seed: int = 0, dtype: torch.dtype = torch.float64) -> "Quadratics":
        g = torch.Generator().manual_seed(seed)
        m = torch.randn(clients, 2 * dim, dim, generator=g, dtype=torch.float64)
        truth = torch.randn(dim, generator=g, dtype=torch.float64) * (torch.arange(dim) < dim // 3)
        shift = torch.randn(clients, dim, generator=g, dtype=torch.float64)
        a = m.mT @ m / (2 * dim)
        return cls(a.to(dtype), (a @ truth + 0.5 * shift).to(dtype))

    @property
    def num_clients(self) -> int:
        return len(self.b)

    @property
    def smoothness(self) -> float:
        return float(torch.linalg.eigvalsh(self.a).max())

    @property
    def z0(self) -> Tensor:
        return torch.linspace(-1, 1, self.b.shape[-1], dtype=self.b.dtype)

    def oracle(self, x: Tensor, k: int) -> Tensor:
        return (self.a @ x.expand_as(self.b).unsqueeze(-1)).squeeze(-1) - self.b

    def client_oracle(self, i: int):
        return lambda x, k: self.a[i] @ x - self.b[i]

    def gradient(self, z: Tensor) -> Tensor:
        return self.oracle(z, 0).mean(0)

    def stationarity(self, z: Tensor, algorithm: Algorithm) -> float:
        """|G_step(z)|."""
        step = algorithm.step
        moved = algorithm.regularizer.prox(z - step * self.gradient(z), step)
        return float((z - moved).norm() / step)


@dataclass
class Outcome:
    replica: State
    clients: State
    points: list[Tensor]
    """The model after each round."""
    server: State


def received(up: Message, t: int = 0, share: float = 1.0) -> Received:
    """What a server has of a stack of up-messages."""
    return Received.of({name: payload.rows() for name, payload in up.items()}, torch.tensor(t), share=share)


def play(algorithm: Algorithm, problem: Quadratics, size: int | None = None) -> Iterator[tuple[State, State, State]]:
    """After every round: the replica, the clients' states and the server's; `size` of the clients take part, or all."""
    n, z0 = problem.num_clients, problem.z0
    algorithm = algorithm.for_share((size or n) / n)
    replica, server = algorithm.replica_init(z0), algorithm.server_init(z0)
    clients = {name: v.repeat(n, 1) for name, v in algorithm.client_init(z0).items()}
    for t in count():
        cohort, key = participants(n, size or n, t)
        some = Quadratics(problem.a[cohort], problem.b[cohort]) if size else problem
        mine = {name: table[cohort] for name, table in clients.items()} if size else clients
        up, mine = algorithm.local(replica, mine, some.oracle, key)
        down, server = algorithm.server_step(server, replica, received(up, t, share=len(cohort) / n))
        replica = algorithm.advance(replica, down)
        mine = algorithm.settled(mine, replica) if size else mine
        clients = {name: table.index_copy(0, cohort, mine[name]) for name, table in clients.items()} if size else mine
        yield replica, clients, server


@cache
def participants(num_clients: int, size: int, t: int) -> tuple[Tensor, Key]:
    """Who takes part in round t, and their key; many tests play the same rounds."""
    draw = torch.Generator().manual_seed(t)
    cohort = torch.randperm(num_clients, generator=draw)[:size].sort().values
    return cohort, round_key(0, t, cohort)


def simulate(algorithm: Algorithm, problem: Quadratics, rounds: int, size: int | None = None) -> Outcome:
    """So many rounds with all clients stacked, or with `size` of them."""
    states = list(islice(play(algorithm, problem, size), rounds))
    replica, clients, server = states[-1]
    return Outcome(replica, clients, [algorithm.trained(replica, server) for replica, _, server in states], server)


def settle(
    algorithm: Algorithm, problem: Quadratics, rounds: int, tolerance: float, size: int | None = None
) -> tuple[Tensor, float]:
    """The first model at which |G| is no more than the tolerance, or the last of so many rounds; and |G| there."""
    for t, (replica, _, server) in enumerate(islice(play(algorithm, problem, size), rounds), 1):
        if t % 20 == 0 or t == rounds:
            z = algorithm.trained(replica, server)
            if (distance := problem.stationarity(z, algorithm)) <= tolerance or t == rounds:
                return z, distance
    raise AssertionError("There must be a round.")


def deploy(algorithm: Algorithm, problem: Quadratics, rounds: int) -> tuple[list[State], list[State], State]:
    """Replicas of all clients, their own states, and the server's replica."""
    n, z0 = problem.num_clients, problem.z0
    server_replica, server = algorithm.replica_init(z0), algorithm.server_init(z0)
    replicas = [algorithm.replica_init(z0) for _ in range(n)]
    clients = [algorithm.client_init(z0) for _ in range(n)]
    for t in range(rounds):
        keys = round_key(0, t, torch.arange(n))
        frames = []
        for i in range(n):
            up, clients[i] = algorithm.local(
                replicas[i], clients[i], problem.client_oracle(i), Key(keys.shared, keys.own[i])
            )
            frames.append(encode(up, FrameKind.UP, t))
        messages = [decode(frame).message for frame in frames]
        parts = {name: [message[name] for message in messages] for name in messages[0]}
        down, server = algorithm.server_step(server, server_replica, Received.of(parts, torch.tensor(t)))
        frame = encode(down, FrameKind.DOWN, t)
        server_replica = algorithm.advance(server_replica, decode(frame).message)
        replicas = [algorithm.advance(replica, decode(frame).message) for replica in replicas]
    return replicas, clients, server_replica
