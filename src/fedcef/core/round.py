"""The facts of a round: who takes part, what everyone draws, how long the steps are.

All follow from the options of the run, the number of clients and the round's number.  The simulator, the server and
the clients of a deployment and the report ask here, so that they agree; no other module derives a key.

    seed → ROUNDS → round              shared by all participants of a round
         → COHORT (→ attempt)          who takes part
         → COMPRESSION                 what a compressor shares
         → SERVER                      what the server draws
         → CLIENTS → client            one client's own
             (→ AGAIN → times)         where it works on one model more than once
             → COHORT (→ attempt)      whether it is among those asked, of clients that can be reached
             → BATCHES                 its minibatches
             → AUGMENT                 what happens to their images
             → COMPRESSION             what a compressor has of its own
             → DROPOUT → step          its masks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.rng import Key, Purpose
from fedcef.core.schedules import Constant, Schedule
from fedcef.core.training import Training

A = TypeVar("A")

POPULATION = 1 << 14
"""From so many clients on nothing in a round may cost as much as looking at each of them once."""


@dataclass(frozen=True, eq=False)
class Round:
    """One round, for the clients given: a cohort (S,), or a single client ()."""

    number: Tensor
    """Of the round, counted from 0: a 0-dim int64 on the device."""
    clients: Tensor
    """The clients' numbers, in ascending order."""
    share: float
    """The cohort's share of all clients, S/N."""
    key: Key
    """What all participants share, and what each of the clients has of its own; not yet folded for any purpose."""
    local_schedule: Schedule
    server_schedule: Schedule

    @property
    def compression(self) -> Key:
        """What the compressors of these clients draw from."""
        return self.key.fold(Purpose.COMPRESSION)

    @property
    def server(self) -> Tensor:
        """What the server draws from; the participants have it too."""
        return rng.fold(self.key.shared, Purpose.SERVER)

    @property
    def batches(self) -> Tensor:
        """What each client's minibatches are drawn from."""
        return rng.fold(self.key.own, Purpose.BATCHES)

    @property
    def augmentation(self) -> Tensor:
        """What happens to the images of each client's minibatches."""
        return rng.fold(self.key.own, Purpose.AUGMENT)

    def dropout(self, step: int) -> Tensor:
        """What each client's dropout masks are drawn from in a local step."""
        return rng.fold(rng.fold(self.key.own, Purpose.DROPOUT), step)

    def again(self, times: Tensor) -> Round:
        """The round for clients that have done so much work on this model before, (S,): what they draw is new."""
        own = rng.fold(rng.fold(self.key.own, Purpose.AGAIN), times)
        return replace(self, key=Key(self.key.shared, torch.where(times > 0, own, self.key.own)))

    def scheduled(self, algorithm: A) -> A:
        """The algorithm with the step sizes of this round; as it is where both schedules are constant.

        Whatever else of it depends on the round's number it is told by `in_round`.
        """
        changed: dict[str, Any] = {}
        for name, schedule in (("local_lr", self.local_schedule), ("server_lr", self.server_schedule)):
            if not isinstance(schedule, Constant):
                changed[name] = getattr(algorithm, name) * schedule.factor(self.number)
        if changed:
            algorithm = replace(algorithm, **changed)  # type: ignore[type-var]
        in_round = getattr(algorithm, "in_round", None)
        return in_round(self.number) if in_round else algorithm


class Rounds:
    """The rounds of a run."""

    def __init__(self, training: Training, num_clients: int, device: torch.device | str = "cpu") -> None:
        self.training, self.num_clients, self.device = training, num_clients, torch.device(device)
        self.cohort_size = training.clients_per_round or num_clients
        if not 1 <= self.cohort_size <= num_clients:
            raise ConfigError(
                f"clients_per_round is {self.cohort_size}; it must be between 1 and num_clients = {num_clients}."
            )
        self.share = self.cohort_size / num_clients
        self._local = training.local_schedule.for_rounds(training.rounds)
        self._server = training.server_schedule.for_rounds(training.rounds)

    def at(self, number: int | Tensor, clients: Tensor | None = None) -> Round:
        """The round of this number, for its cohort or for the clients given."""
        number = self._on_device(number)
        everyone = clients if clients is not None else self.cohort(number)
        key = rng.round_key(self.training.seed, number, everyone)
        share = everyone.numel() / self.num_clients
        return Round(number, everyone, share, key, self._local, self._server)

    def of_client(self, number: int | Tensor, client: int) -> Round:
        """The round of this number as one client has it: its keys are 0-dim."""
        return self.at(number, torch.tensor(client, device=self.device))

    def cohort(self, number: int | Tensor, size: int = 0, attempt: int = 0) -> Tensor:
        """The clients that are asked in a round, in ascending order: as many as take part, or `size` of them.

        Another attempt at the same round draws others.
        """
        size = size or self.cohort_size
        if size == self.num_clients:
            return torch.arange(self.num_clients, device=self.device)
        return draw_cohort(self._cohort_key(number, attempt), self.num_clients, size)

    @property
    def asked_size(self) -> int:
        """How many clients are asked in a round: those who take part, and on a network some more (over_selection)."""
        network = self.training.network
        return min(ceil((network.over_selection if network else 1) * self.cohort_size), self.num_clients)

    @property
    def is_population(self) -> bool:
        """Whether there are so many clients that a round must not look at each of them."""
        return self.num_clients > POPULATION

    def cohort_among(self, connected: Sequence[int], number: int, attempt: int = 0) -> list[int]:
        """The cohort of a round if only these clients can be reached.

        With everyone connected it is `cohort`; another attempt at the same round draws others.
        """
        if self.cohort_size >= len(connected):
            return list(connected)
        key = self._cohort_key(number, attempt)
        return [connected[i] for i in draw_cohort(key, len(connected), self.cohort_size).tolist()]

    def some_of(self, clients: Tensor, number: int | Tensor, size: int, attempt: int = 0) -> Tensor:
        """Up to `size` of the given clients, ascending; each has the same chance, whoever the others are."""
        if len(clients) <= size:
            return clients
        keys = rng.fold(rng.round_key(self.training.seed, number, clients).own, Purpose.COHORT)
        keys = rng.fold(keys, attempt) if attempt else keys
        first = torch.argsort(rng.bits(keys, 1).squeeze(-1), stable=True)[:size]
        return clients[first].sort().values

    def _cohort_key(self, number: int | Tensor, attempt: int = 0) -> Tensor:
        nobody = torch.zeros(0, dtype=torch.int64, device=self.device)
        key = rng.fold(rng.round_key(self.training.seed, number, nobody).shared, Purpose.COHORT)
        return rng.fold(key, attempt) if attempt else key

    def _on_device(self, number: int | Tensor) -> Tensor:
        if isinstance(number, Tensor):
            return number
        return torch.full((), number, dtype=torch.int64, device=self.device)


def draw_cohort(key: Tensor, num_clients: int, size: int) -> Tensor:
    """Distinct clients in ascending order; small cohorts of a population are drawn without looking at everyone."""
    if num_clients > POPULATION and 8 * size <= num_clients:
        return rng.few(key, num_clients, size)
    return rng.subset(key, num_clients, size)


def rehearsal_key(clients: Tensor) -> Key:
    """A key for trying out a message before the first round; it is no round's own purpose."""
    return rng.round_key(0, 0, clients)
