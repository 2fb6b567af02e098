"""Rounds on a network of unequal clients: the engine's, with a clock, and without those that come too late.

As in a deployment, a client that drops out is as if it had not been asked: its message is not in the mean, and its
state stays what it was.  What it was sent counts all the same, and of its reply what had left it when the round ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message
from fedcef.core.errors import RunError
from fedcef.core.network import Network
from fedcef.simulation.engine import Engine
from fedcef.simulation.network.arrivals import arrivals
from fedcef.simulation.network.asking import ask
from fedcef.simulation.network.clock import RoundClock
from fedcef.simulation.network.counting import handed_out, with_more_up
from fedcef.simulation.network.population import Population
from fedcef.simulation.state import RunState
from fedcef.simulation.workers import only
from fedcef.simulation.workers.stacks import some_of
from fedcef.wire import frame_nbytes, frame_paper_nbytes

_MOST_ATTEMPTS = 1000  # at one round, with too few answers


@dataclass(frozen=True, eq=False)
class TimedRounds:
    """Plays rounds on a network; `play` has the signature of the engine's."""

    engine: Engine
    network: Network
    population: Population

    def start(self) -> RoundClock:
        """The clock before the first round; the start point is everyone's already."""
        asked, begins = self._ask(0, 0.0)
        return RoundClock(0.0, begins, asked, torch.zeros(len(asked), dtype=torch.int64))

    def play(self, state: RunState, number: int) -> tuple[RunState, Message]:
        """One round, in as many attempts as it takes until enough clients answer."""
        state, answering = self._with_answers(state, number)
        clock, engine, network = _clock(state), self.engine, self.network
        round_ = engine.rounds.at(number, clock.asked)
        up, proposed = engine.workers.work(engine, state, round_)
        sizes = frame_nbytes(up, round_.scheduled(engine.algorithm).contexts(state.replica)).cpu()
        links = self.population.links(clock.asked).within(1e6 * network.server_mbit / len(clock.asked))
        timing = links.timing(clock.due, engine.algorithm.local_steps, sizes, network.overhead_s)
        times = timing.arrived.masked_fill(~answering, torch.inf)
        ended = arrivals(times, engine.rounds.cohort_size, network)
        assert ended is not None, "those that answer are enough"

        late = timing.share_sent(ended.seconds) * answering
        late[ended.rows] = 0
        ledger = with_more_up(state.ledger, *((late * n.cpu()).long() for n in (sizes, frame_paper_nbytes(up))))
        if len(ended.rows) < len(clock.asked):
            rows = ended.rows.to(clock.asked.device)
            round_ = engine.rounds.at(number, clock.asked[rows])
            up = {name: some_of(payload, ended.rows) for name, payload in up.items()}
            proposed = only(proposed, ended.rows)
        end = clock.begins + ended.seconds
        listeners, begins = self._ask(number + 1, end)
        after, down, counted = engine.close(replace(state, ledger=ledger), round_, up, proposed, listeners)
        due = ledger.wire.due(counted, listeners, engine.told(round_)).cpu()
        return replace(after, clock=RoundClock(end, begins, listeners, due, len(ended.rows))), down

    def _with_answers(self, state: RunState, number: int) -> tuple[RunState, Tensor]:
        """The state once enough of the clients asked will answer, and which of them do: bool (S,).

        Until then deadlines pass, and others are asked and brought up to date.
        """
        attempt = 0
        while True:
            clock = _clock(state)
            answering = self.population.available(clock.asked, clock.begins)
            if int(answering.sum()) >= min(self.network.at_least, self.engine.rounds.cohort_size, len(answering)):
                return state, answering
            attempt += 1
            if attempt > _MOST_ATTEMPTS:
                raise RunError(
                    f"In {_MOST_ATTEMPTS} attempts at round {number} fewer than network.at_least = "
                    f"{self.network.at_least} clients answered; lower it, ask more (network.over_selection), or draw "
                    "only clients that are there (network.unavailable = 'not_drawn')."
                )
            asked, begins = self._ask(number, clock.begins + self.network.deadline, attempt)
            ledger, due = handed_out(state.ledger, state.replica, asked)
            state = replace(state, ledger=ledger, clock=replace(clock, begins=begins, asked=asked, due=due.cpu()))

    def _ask(self, number: int, at: float, attempt: int = 0) -> tuple[Tensor, float]:
        rounds = self.engine.rounds
        return ask(rounds, self.population, self.network, number, at, rounds.asked_size, attempt)


def _clock(state: RunState) -> RoundClock:
    assert isinstance(state.clock, RoundClock), "a run on a network has a clock"
    return state.clock
