"""Recorded rounds with states that lie anywhere.

A CUDA graph works on memory that stays where it is, and a store may have its rows on the host, on a disk, or in tables
that are far larger than a cohort.  So what is recorded knows a seat for each member of a cohort and no more: before a
round its members' rows are put there, and after it they are put back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.core.round import Rounds
from fedcef.simulation.client_states import ClientStates
from fedcef.simulation.engine import Play
from fedcef.simulation.state import RunState


@dataclass(frozen=True, eq=False)
class Seats(ClientStates):
    """The states of one cohort, in the order of its clients, whoever they are."""

    rows: State
    """A table (S, p) for each name."""

    captures: ClassVar[bool] = True

    @classmethod
    def start(cls, state: State, num_clients: int) -> Seats:
        """A cohort of so many, all with the same state."""
        return cls({name: vector.expand(num_clients, *vector.shape).clone() for name, vector in state.items()})

    def take(self, clients: Tensor) -> State:
        """The rows, of the round's cohort."""
        return self.rows

    def put(self, clients: Tensor, rows: State) -> Seats:
        """Other rows."""
        return Seats(rows)

    def mean(self) -> State:
        """Of the cohort."""
        return {name: table.mean(0) for name, table in self.rows.items()}

    def tensors(self) -> State:
        """The rows."""
        return self.rows

    def with_tensors(self, tensors: State) -> Seats:
        """Those rows."""
        return Seats(tensors)


@dataclass(frozen=True, eq=False)
class Seated:
    """A `play` that knows seats, for states in any store."""

    play: Play
    rounds: Rounds
    """On the host: who takes part is known there before the device works."""

    def __call__(self, state: RunState, number: int) -> tuple[RunState, Message]:
        """The state after the round, whose rows are back in their store, and the down-message."""
        cohort = self.rounds.cohort(number)
        after, down = self.play(replace(state, clients=Seats(state.clients.take(cohort))), number)
        return replace(after, clients=state.clients.put(cohort, after.clients.tensors())), down
