"""How the work of a round's clients is done, and where the states that they propose are until the round has ended.

A round needs of its cohort one stack of messages, in the order of the clients, and new states.  By whom and how many
at a time they are computed is for a `Workers` to say.  Whatever comes after (the mean in the order of the clients, the
server's step, the replica, the ledger) is the engine's, so that it is the same code and gives the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.core.round import Round
from fedcef.simulation.client_states import ClientStates, States
from fedcef.simulation.state import RunState

if TYPE_CHECKING:
    from fedcef.simulation.engine import Engine

Settle: TypeAlias = Callable[[State], State]
"""What clients make of their proposed states once they know how the round ended."""


class PutAway(ABC):
    """Proposed states that are no rows at hand: they are in their store already, or with another process."""

    @abstractmethod
    def commit(self, settle: Settle | None) -> tuple[ClientStates, Tensor]:
        """All states with the proposed ones in their place, and whether those are finite."""

    def only(self, rows: Tensor) -> Proposed:
        """Those of the clients in these places of the cohort, for rounds that others come too late for."""
        raise NotImplementedError("These states are in their store already.")


Proposed: TypeAlias = State | PutAway
"""The states that a cohort proposes: a table (S, p) for each name, or what has put them away."""


class Workers(ABC):
    """Does the work of a round's clients."""

    captures: ClassVar[bool] = False
    """Whether it is tensor operations alone, so that a CUDA graph can hold a round."""

    @abstractmethod
    def work(self, engine: Engine, state: RunState, round_: Round) -> tuple[Message, Proposed]:
        """The up-messages of the round's clients, stacked in their order, and the states that they then propose."""

    def first_message(self, engine: Engine, state: RunState, round_: Round) -> Message:
        """The up-message of the round's first client alone."""
        up, _ = self.work(engine, state, round_)
        return {name: payload.rows()[0] for name, payload in up.items()}

    def check(self, engine: Engine) -> None:  # noqa: B027
        """Refuse here what could not work: a run that cannot begin leaves nothing behind."""

    def states(self, states: States) -> States:
        """Where clients' states are kept for these workers, given where they would be kept by one."""
        return states


def commit(
    clients: ClientStates, cohort: Tensor, proposed: Proposed, settle: Settle | None
) -> tuple[ClientStates, Tensor]:
    """All clients' states after a round, and whether those that changed are finite, on the device."""
    if isinstance(proposed, PutAway):
        return proposed.commit(settle)
    rows = proposed if settle is None else settle(proposed)
    return clients.put(cohort, rows), all_finite(rows)


def only(proposed: Proposed, rows: Tensor) -> Proposed:
    """The proposed states of the clients in these places of the cohort; the others' stay what they were."""
    if isinstance(proposed, PutAway):
        return proposed.only(rows)
    return {name: table[rows.to(table.device)] for name, table in proposed.items()}


def all_finite(state: Mapping[str, Tensor]) -> Tensor:
    """Whether all entries are finite; one number on the device, not read back."""
    flags = [vector.abs().amax().isfinite() for vector in state.values()]
    return torch.stack(flags).all() if flags else torch.ones((), dtype=torch.bool)
