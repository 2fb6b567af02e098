"""Small quadratic clients with exact gradients, and two engines around the contract.

`simulate` stacks all clients, as the simulator does.  `deploy` keeps server and clients apart: single vectors, every
message through its bytes, a replica of its own for each participant.
"""

from dataclasses import dataclass

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
        return torch.einsum("nij,nj->ni", self.a, x.expand_as(self.b)) - self.b

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


def received(up: Message, t: int = 0, share: float = 1.0) -> Received:
    """What a server has of a stack of up-messages."""
    return Received.of({name: payload.rows() for name, payload in up.items()}, torch.tensor(t), share=share)


def simulate(algorithm: Algorithm, problem: Quadratics, rounds: int) -> Outcome:
    n, z0 = problem.num_clients, problem.z0
    replica, server = algorithm.replica_init(z0), algorithm.server_init(z0)
    clients = {name: v.repeat(n, 1) for name, v in algorithm.client_init(z0).items()}
    points = []
    for t in range(rounds):
        up, clients = algorithm.local(replica, clients, problem.oracle, round_key(0, t, torch.arange(n)))
        down, server = algorithm.server_step(server, replica, received(up, t))
        replica = algorithm.advance(replica, down)
        points.append(algorithm.model(replica))
    return Outcome(replica, clients, points)


def simulate_some(algorithm: Algorithm, problem: Quadratics, rounds: int, size: int) -> tuple[Outcome, list[Tensor]]:
    """`simulate` with `size` of the clients in every round; the cohorts; the server's state as "server …"."""
    n, z0 = problem.num_clients, problem.z0
    replica, server = algorithm.replica_init(z0), algorithm.server_init(z0)
    clients = {name: v.repeat(n, 1) for name, v in algorithm.client_init(z0).items()}
    draw, points, cohorts = torch.Generator().manual_seed(0), [], []
    for t in range(rounds):
        cohort = torch.randperm(n, generator=draw)[:size].sort().values
        oracle = Quadratics(problem.a[cohort], problem.b[cohort]).oracle
        mine = {name: table[cohort] for name, table in clients.items()}
        up, mine = algorithm.local(replica, mine, oracle, round_key(0, t, cohort))
        down, server = algorithm.server_step(server, replica, received(up, t, share=size / n))
        replica = algorithm.advance(replica, down)
        clients = {name: table.index_copy(0, cohort, mine[name]) for name, table in clients.items()}
        points.append(algorithm.model(replica))
        cohorts.append(cohort)
    known = {**replica, **{f"server {name}": vector for name, vector in server.items()}}
    return Outcome(known, clients, points), cohorts


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
