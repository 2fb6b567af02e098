"""Some of the cohort's clients at a time, in this process.

Of a chunk's clients there are states, gradients and points in memory, tables (chunk, p); of all others only messages,
which are short or added up.  Proposed states are put into their store chunk by chunk, and taken out once more where a
method tells its cohort how the round ended.  Where clients may come too late, on a simulated network, it is known only
in the end whose states those are, so that all proposed ones are kept until then.

A client's numbers do not depend on who is computed beside it, so that any chunk gives the same bits; but for one thing.
A product of matrices for all clients at once (`oracle = "stacked"`) may be left to another kernel where there are fewer
of them: on a CPU if torch has several threads to split it over, which it has where N·p is above 2²⁰, and on a GPU.
Then last bits may differ.  With one thread (OMP_NUM_THREADS=1), and with gradients client by client (`loop`) or by
kernels of ours (`batched`), they do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.core.round import Round
from fedcef.simulation.client_states import ClientStates
from fedcef.simulation.state import RunState
from fedcef.simulation.workers.stacks import Gathering
from fedcef.simulation.workers.workers import Proposed, PutAway, Settle, Workers, all_finite

if TYPE_CHECKING:
    from fedcef.simulation.engine import Engine


@dataclass(frozen=True)
class Chunked(Workers):
    """At most `size` clients at a time."""

    size: int
    keeps_all: bool = False
    """Whether single messages are wanted, and not the sums of dense ones."""

    captures: ClassVar[bool] = True

    def work(self, engine: Engine, state: RunState, round_: Round) -> tuple[Message, Proposed]:
        clients, finite, messages = state.clients, [], Gathering(not self.keeps_all and engine.wants_means)
        parts, kept = list(chunks(round_, self.size)), []
        for part in parts:
            up, rows = engine.local(state.replica, clients.take(part.clients), part)
            messages.take(up)
            if engine.drops:
                kept.append(rows)
                continue
            clients = clients.put(part.clients, rows)
            finite.append(all_finite(rows))
        if engine.drops:
            return messages.message(), tables(kept)
        return messages.message(), InStore(clients, [part.clients for part in parts], torch.stack(finite).all())

    def first_message(self, engine: Engine, state: RunState, round_: Round) -> Message:
        first = next(chunks(round_, self.size))
        up, _ = engine.work(state, first)
        return {name: payload.rows()[0] for name, payload in up.items()}


@dataclass(frozen=True, eq=False)
class InStore(PutAway):
    """Proposed states that were put into the store chunk by chunk."""

    clients: ClientStates
    """All states, with the proposed ones among them."""
    chunks: Sequence[Tensor]
    finite: Tensor

    def commit(self, settle: Settle | None) -> tuple[ClientStates, Tensor]:
        if settle is None:
            return self.clients, self.finite
        clients, finite = self.clients, [self.finite]
        for chunk in self.chunks:
            rows = settle(clients.take(chunk))
            clients = clients.put(chunk, rows)
            finite.append(all_finite(rows))
        return clients, torch.stack(finite).all()


def chunks(round_: Round, size: int) -> Iterator[Round]:
    """The round for at most `size` of its clients at a time, in their order."""
    for start in range(0, len(round_.clients), size):
        yield part_of(round_, slice(start, start + size))


def tables(pieces: Sequence[State]) -> State:
    """The rows of several chunks, one after the other."""
    return {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}


def part_of(round_: Round, places: slice) -> Round:
    """The round for the clients in these places of its cohort; their keys are what they are in the cohort."""
    return replace(round_, clients=round_.clients[places], key=round_.key.of(places))
