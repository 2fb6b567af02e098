"""The round loop: every algorithm, all clients at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, Message, State
from fedcef.algorithms.received import Received
from fedcef.core import rng
from fedcef.core.errors import ConfigError, DivergedError, ProblemError
from fedcef.core.precision import Precision, matrix_units
from fedcef.core.rng import round_key
from fedcef.core.schedules import Constant, Schedule, in_round
from fedcef.core.threads import is_small, single_thread
from fedcef.oracles.oracle import Batches, make_oracle
from fedcef.problems.problem import Problem, Weighting
from fedcef.simulation.budget import Budget, Spender
from fedcef.simulation.capture import CapturedRounds
from fedcef.simulation.ledger import Ledger


class Simulation:
    """A run in memory: the replica, the server's and all clients' states, and the bytes so far.

    Client states are tables (N, p).  `step()` does one round.  Everything random is a function of
    (seed, round, client), so `round` and the states are all that is needed to go on.

    On a GPU the first round is run as it is written and the second is recorded as a CUDA graph, which is all that later
    rounds replay.  From then on the states stay in the same memory: a round overwrites those of the round before.
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        *,
        seed: int = 0,
        batch_size: int = 64,
        clip_norm: float | None = None,
        clients_per_round: int | None = None,
        weighting: Weighting = "uniform",
        oracle: Literal["auto", "loop", "stacked", "batched"] = "auto",
        precision: Precision = "float32",
        local_schedule: Schedule = Constant(),
        server_schedule: Schedule = Constant(),
        cuda_graphs: bool = True,
        budget: Budget | None = None,
    ) -> None:
        if not problem.num_clients:
            raise ProblemError("The problem has no clients to simulate; it is a server's.")
        self.problem, self.algorithm, self.seed = problem, algorithm, seed
        self.cohort_size = _cohort_size(algorithm, problem.num_clients, clients_per_round)
        self.precision: Precision = precision
        self.local_schedule, self.server_schedule = local_schedule, server_schedule
        self._oracle = make_oracle(problem, oracle, Batches(batch_size), clip_norm, precision)
        if weighting == "samples" and self.cohort_size < problem.num_clients and algorithm.client_init(problem.z0):
            raise ConfigError(
                f"{type(algorithm).__name__} keeps the server's sums in step with its clients' states only if "
                "all clients count alike; take weighting = 'uniform', or all clients in every round."
            )
        self._weights = problem.sizes.to(problem.z0.dtype) if weighting == "samples" else None

        z0, device = problem.z0, problem.z0.device
        self.round = 0
        self.replica: State = algorithm.replica_init(z0)
        self.server: State = algorithm.server_init(z0)
        self.clients: State = {
            name: vector.repeat(problem.num_clients, 1) for name, vector in algorithm.client_init(z0).items()
        }
        self.ledger = Ledger(problem.num_clients, device)
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        self._captures = cuda_graphs and z0.is_cuda and self._oracle.captures and problem.regularizer.captures
        self._captured = CapturedRounds(self)
        self.spender = Spender(budget, self) if budget else None

    def cohort(self, round_: int | Tensor) -> Tensor:
        """The clients that take part in a round, in ascending order."""
        n = self.problem.num_clients
        everyone = torch.arange(n, device=self.problem.z0.device)
        if self.cohort_size == n:
            return everyone
        key = rng.fold(round_key(self.seed, round_, everyone).shared, rng.COHORT)
        return rng.subset(key, n, self.cohort_size)

    def step(self) -> Message:
        """One round; returns its down-message."""
        small = is_small(self.problem.num_clients * self.problem.dim)
        with torch.no_grad(), matrix_units(self.precision), single_thread(when=small):
            down = self.spender.play(self) if self.spender else self.play_next()
        self.round += 1
        return down

    def play_next(self, level: int = 0) -> Message:
        """Do the next round, from its recording where there is one for this level of a budget."""
        if self._captures:
            return self._captured.play(level)
        return self.play(torch.full((), self.round, dtype=torch.int64, device=self.problem.z0.device))

    def play(self, round_: Tensor) -> Message:
        """Do the round of this number, a tensor on the device: tensor operations only, nothing is read back."""
        algorithm = in_round(self.algorithm, self.local_schedule, self.server_schedule, round_)
        clients = self.cohort(round_)
        key = round_key(self.seed, round_, clients)
        everyone = len(clients) == self.problem.num_clients
        mine = self.clients if everyone else {name: table[clients] for name, table in self.clients.items()}

        oracle = self._oracle.for_round(clients, key, algorithm.local_steps)
        up, proposed = algorithm.local(self.replica, mine, oracle, key.fold(rng.COMPRESSION))
        weights = None if self._weights is None else self._weights[clients]
        server_key = rng.fold(key.shared, rng.SERVER)
        parts = {name: payload.rows() for name, payload in up.items()}
        received = Received.of(parts, server_key, share=len(clients) / self.problem.num_clients, weights=weights)
        down, self.server = algorithm.server_step(self.server, self.replica, received)
        self.replica = algorithm.advance(self.replica, down)
        self.clients = (
            proposed if everyone else {n: self.clients[n].index_copy(0, clients, proposed[n]) for n in proposed}
        )

        self.ledger.add_round(up, down, self.replica, self.cohort(round_ + 1))
        self.finite = self.finite & _all_finite(self.replica) & _all_finite(self.clients)
        return down

    def state(self) -> dict[str, State]:
        """Everything that the next round needs, by who holds it."""
        return {
            "replica": self.replica,
            "server": self.server,
            "clients": self.clients,
            "ledger": self.ledger.state(),
            **({"budget": self.spender.state()} if self.spender else {}),
        }

    def restore(self, round_: int, state: Mapping[str, State]) -> None:
        """Go on after `round_` rounds from a state as `state()` gave it, on any device."""
        device = self.problem.z0.device

        def here(part: str) -> State:
            return {name: vector.to(device) for name, vector in state[part].items()}

        self.round = round_
        self.replica, self.server, self.clients = here("replica"), here("server"), here("clients")
        self.ledger.restore(here("ledger"))
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        self._captured = CapturedRounds(self)
        if self.spender:
            self.spender.restore(state["budget"])

    def progress(self) -> dict[str, Tensor]:
        """The bytes so far and whether all numbers are finite, on the device."""
        return {**self.ledger.on_device(), "finite": self.finite}

    def model(self) -> Tensor:
        """The current point, (p,)."""
        return self.algorithm.model(self.replica)

    def check_finite(self) -> None:
        """Stop a run whose numbers have overflowed."""
        if not bool(self.finite):
            raise self.diverged(self.round)

    def diverged(self, round_: int) -> DivergedError:
        """What to say of a run whose numbers overflowed in a round, and what to try."""
        a = self.algorithm
        return DivergedError(
            f"{type(a).__name__} diverged: round {round_} left values that are not finite numbers.  "
            f"Try a smaller local_lr (now {a.local_lr:g}), gradient clipping (clip_norm, now "
            f"{self._oracle.clip_norm or 'off'}), fewer local_steps (now {a.local_steps}), or the same step with a "
            f"smaller local_lr and a larger server_lr (now {a.server_lr:g})."
        )


def _all_finite(state: Mapping[str, Tensor]) -> Tensor:
    """Whether all entries are finite; one number on the device, not read back."""
    flags = [vector.abs().amax().isfinite() for vector in state.values()]
    return torch.stack(flags).all() if flags else torch.ones((), dtype=torch.bool)


def _cohort_size(algorithm: Algorithm, num_clients: int, clients_per_round: int | None) -> int:
    size = clients_per_round or num_clients
    if not 1 <= size <= num_clients:
        raise ConfigError(f"clients_per_round is {size}; it must be between 1 and num_clients = {num_clients}.")
    if size < num_clients and not algorithm.partial_participation:
        raise ConfigError(
            f"{type(algorithm).__name__} needs all clients in every round; leave clients_per_round out "
            f"(it is {size}, num_clients is {num_clients})."
        )
    return size
