"""How much of the log of down-messages each client has: one number for everyone, kept as clients' states are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.core.round import POPULATION
from fedcef.simulation.client_states import ClientStates, Table
from fedcef.simulation.stores.touched import Touched
from fedcef.simulation.tally import Tally

_NAME = "have"


@dataclass(frozen=True, eq=False)
class Marks:
    """A value: moving some clients' marks leaves the old ones as they were, and costs what it changes."""

    numbers: ClientStates
    num_clients: int
    tally: Tally | None = None
    """The same by place, if there are too many clients to go through in a round."""

    @classmethod
    def start(cls, num_clients: int, device: torch.device) -> Marks:
        """Nobody has anything yet; of a population only those are kept that have."""
        kind = Touched if num_clients > POPULATION and device.type == "cpu" else Table
        return cls._of(kind.start({_NAME: torch.zeros((), dtype=torch.int64, device=device)}, num_clients), num_clients)

    def of(self, clients: Tensor) -> Tensor:
        """The marks of these clients, (S,)."""
        return self.numbers.take(clients)[_NAME]

    def moved(self, clients: Tensor, to: Tensor) -> Marks:
        """The marks with those of these clients at a place, ()."""
        tally = self.tally if self.tally is None or not len(clients) else self.tally.moved(self.of(clients), to)
        return Marks(self.numbers.put(clients, {_NAME: to.expand(len(clients)).clone()}), self.num_clients, tally)

    def everyone(self) -> Tensor:
        """All marks, (N,)."""
        return self.numbers.take(torch.arange(self.num_clients))[_NAME]

    def missed(self, log: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Sum and norm of what all clients miss of a log of this length, none more than `most`: two numbers, ()."""
        if self.tally is not None:
            return self.tally.missed(log, most)
        missed = (log - self.everyone()).clamp(max=most).double()
        return missed.sum(), missed.norm()

    def copied(self) -> Marks:
        """The same marks in memory of their own."""
        return Marks(self.numbers.copied(), self.num_clients, self.tally)

    def tensors(self) -> State:
        """What a snapshot keeps, by name."""
        return self.numbers.tensors()

    def with_tensors(self, tensors: State) -> Marks:
        """The marks that `tensors` gave these for; raises ValueError if they are of another problem."""
        return self._of(self.numbers.with_tensors(tensors), self.num_clients)

    @classmethod
    def _of(cls, numbers: ClientStates, num_clients: int) -> Marks:
        if not isinstance(numbers, Touched):
            return cls(numbers, num_clients)
        moved = numbers.touched()
        return cls(numbers, num_clients, Tally.of(numbers.take(moved)[_NAME], num_clients - len(moved)))
