"""Buffered asynchronous aggregation: nobody waits for anybody.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation" (arXiv 2106.06639), as a mode of the engine.
`concurrency` clients are at work at any time.  As soon as `buffer` replies are in, the server steps by their mean, in
which a change that was made of a model a steps ago counts 1/(1 + a)^discount.  Whenever a client is done, another one
is drawn among those that are idle and can be reached, and is handed the model as it then is.

What happens at one moment happens in this order: all replies that are due then are taken, in the order of the clients'
numbers; the server steps, as often as it has enough; free places are filled.  So with equal clients, all of them at
work and a buffer for all, these are rounds, and the same ones to the last bit.

A round of the run is a step of the server, and `round`-dependent things (schedules, minibatches, cohorts) go by the
version that a client was handed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message
from fedcef.algorithms.received import Received
from fedcef.algorithms.statistics import STATISTICS
from fedcef.core.errors import RunError
from fedcef.core.network import Network
from fedcef.core.round import Round
from fedcef.simulation.engine import Engine
from fedcef.simulation.ledger import Ledger
from fedcef.simulation.network.asking import ask
from fedcef.simulation.network.counting import handed_out, with_more_up
from fedcef.simulation.network.jobs import Job, JobClock, clients_of
from fedcef.simulation.network.links import Links
from fedcef.simulation.network.population import Population
from fedcef.simulation.state import RunState
from fedcef.wire import as_stack, frame_nbytes, frame_paper_nbytes

_MOST_GIVEN_UP = 10_000  # moments in a row, without a reply


@dataclass(frozen=True, eq=False)
class Asynchronous:
    """Plays the steps of a server that does not wait; `play` has the signature of the engine's."""

    engine: Engine
    network: Network
    population: Population

    def start(self) -> JobClock:
        """The clock when the first clients begin; the start point is everyone's already."""
        clock = JobClock(0.0, self.engine.rounds.device)
        clients, at = self._drawn(clock, 0)
        return self._given(replace(clock, seconds=at), 0, clients, torch.zeros(len(clients)))

    def play(self, state: RunState, number: int) -> tuple[RunState, Message]:
        """The server's next step, after as many replies as it takes."""
        given_up = 0
        while len(_clock(state).waiting) < self.network.buffer:
            waiting = len(_clock(state).waiting)
            state = self._to_the_next_moment(state, number)
            given_up = given_up + 1 if len(_clock(state).waiting) == waiting else 0
            if given_up > _MOST_GIVEN_UP:
                raise RunError(
                    f"{_MOST_GIVEN_UP} times in a row a client was given up before its reply came; raise "
                    f"network.deadline (now {self.network.deadline:g} s), or leave it out."
                )
            if len(_clock(state).waiting) < self.network.buffer:
                state = self._filled(state, number)
        state, down = self._step(state, number)
        if len(_clock(state).waiting) < self.network.buffer:
            state = self._filled(state, number + 1)
        return state, down

    # replies

    def _to_the_next_moment(self, state: RunState, number: int) -> RunState:
        """Let time go on until a reply is in, or a client is given up; those of the same moment come together."""
        while True:
            clock = _clock(state)
            now = min(self._end(job) for job in clock.under_way)
            early = {job.version for job in clock.under_way if job.message is None and job.worked <= now}
            if not early:
                break
            for version in sorted(early):
                state = replace(state, clock=self._computed(state, number, version))
        over = [job for job in clock.under_way if self._end(job) == now]
        here = sorted((job for job in over if job.arrives == now), key=lambda job: job.client)
        lost = [job for job in over if job.arrives != now and job.message is not None]
        under_way = tuple(job for job in clock.under_way if self._end(job) != now)
        clients = state.clients
        for job in here:
            if job.proposed:
                rows = {name: row.unsqueeze(0) for name, row in job.proposed.items()}
                clients = clients.put(clients_of([job], clock.device), rows)
        clock = replace(clock, seconds=now, under_way=under_way, waiting=(*clock.waiting, *here))
        return replace(state, clients=clients, clock=clock, ledger=self._with_cut_off(state.ledger, lost, now))

    def _end(self, job: Job) -> float:
        """When a job is over, at the earliest if its reply's length is not known yet."""
        given_up = job.began + (self.network.deadline or inf)
        return min(given_up, job.arrives if job.message is not None else job.worked)

    def _computed(self, state: RunState, number: int, version: int) -> JobClock:
        """The clock once all that are at work on a version have their replies."""
        clock, engine = _clock(state), self.engine
        todo = [job for job in clock.under_way if job.message is None and job.version == version and job.worked < inf]
        todo.sort(key=lambda job: job.client)
        clients = clients_of(todo, clock.device)
        again = torch.tensor([job.again for job in todo], device=clock.device)
        round_ = engine.rounds.at(version, clients).again(again)
        replica = state.replica if version == number else clock.versions[version]
        up, proposed = engine.local(replica, state.clients.take(clients), round_)
        began = torch.tensor([job.worked for job in todo], dtype=torch.float64)
        links = self._links(clients)
        arrives = (began + 8 * frame_nbytes(up).cpu() / links.up + links.latency).tolist()
        rows = {name: payload.rows() for name, payload in up.items()}
        done = {
            id(job): replace(
                job,
                arrives=arrives[i],
                message={name: payloads[i] for name, payloads in rows.items()},
                proposed={name: table[i] for name, table in proposed.items()},
            )
            for i, job in enumerate(todo)
        }
        return _tidy(replace(clock, under_way=tuple(done.get(id(job), job) for job in clock.under_way)))

    # the server

    def _step(self, state: RunState, number: int) -> tuple[RunState, Message]:
        clock, engine, size = _clock(state), self.engine, self.network.buffer
        used = sorted(clock.waiting[:size], key=lambda job: job.client)
        messages = [job.message for job in used if job.message is not None]
        up = {name: as_stack([message[name] for message in messages]) for name in messages[0]}
        round_ = engine.rounds.at(number, clients_of(used, clock.device))
        ages = torch.tensor([number - job.version for job in used], dtype=torch.float64)
        received = self._received(up, round_, (1 + ages) ** -self.network.discount)
        nobody = torch.zeros(0, dtype=torch.int64, device=clock.device)
        own = state.clients.take(round_.clients)  # theirs since their replies came
        after, down, _ = engine.close(state, round_, up, own, nobody, received)
        kept = {**clock.versions, number: state.replica}
        clock = replace(
            clock,
            waiting=clock.waiting[size:],
            versions=kept,
            handed_out=(),
            arrivals=size,
            staleness=float(ages.mean()),
        )
        return replace(after, clock=_tidy(clock)), down

    def _received(self, up: Message, round_: Round, discounts: Tensor) -> Received:
        """The replies with a mean in which stale ones count less: a discount is not made up for by the others."""
        weights = None if self.engine.weights is None else self.engine.weights(round_.clients)
        if bool((discounts == 1).all()):
            return Received.of(up, round_.server, share=round_.share, weights=weights)
        alike = torch.ones(len(discounts), device=round_.clients.device)
        counts = (alike if weights is None else weights).double()
        discounted = counts * discounts.to(counts.device)
        received = Received.of(up, round_.server, share=round_.share, weights=discounted)
        kept = float(discounted.sum() / counts.sum())
        # running statistics are no change: a mean in which stale ones count less is all that is wanted of them
        means = {name: mean if name == STATISTICS else kept * mean for name, mean in received.mean.items()}
        return replace(received, mean=means)

    # work for clients

    def _filled(self, state: RunState, version: int) -> RunState:
        """The state once all free places have a client at work, as far as there are any."""
        clock = _clock(state)
        clients, at = self._drawn(clock, version)
        if not len(clients):
            return state
        ledger, due = handed_out(state.ledger, state.replica, clients)
        clock = self._given(replace(clock, seconds=max(clock.seconds, at)), version, clients, due)
        return replace(state, ledger=ledger, clock=clock)

    def _drawn(self, clock: JobClock, version: int) -> tuple[Tensor, float]:
        """Idle clients for the free places, ascending, and the time: later if nobody is there and nobody at work."""
        busy = clients_of(clock.under_way, clock.device)
        attempt, free = len(clock.handed_out), self._places - len(busy)
        return ask(self.engine.rounds, self.population, self.network, version, clock.seconds, free, attempt, busy)

    @property
    def _places(self) -> int:
        return self.network.concurrency or self.engine.rounds.cohort_size

    def _given(self, clock: JobClock, version: int, clients: Tensor, due: Tensor) -> JobClock:
        """The clock once these clients have been asked to work on this version, which takes them so many bytes."""
        network, at = self.network, clock.seconds
        steps = self.engine.algorithm.local_steps
        timing = self._links(clients).timing(due.cpu(), steps, torch.zeros(len(clients)), network.overhead_s)
        answering = self.population.available(clients, at).tolist()
        before = Counter(clock.handed_out)
        numbers = clients.tolist()
        jobs = tuple(
            Job(client, version, before[client], at, at + worked if there else inf)
            for client, worked, there in zip(numbers, timing.worked.tolist(), answering, strict=True)
        )
        return replace(clock, under_way=(*clock.under_way, *jobs), handed_out=(*clock.handed_out, *numbers))

    def _links(self, clients: Tensor) -> Links:
        return self.population.links(clients).within(1e6 * self.network.server_mbit / self._places)

    def _with_cut_off(self, ledger: Ledger, jobs: Sequence[Job], now: float) -> Ledger:
        """The ledger with what had left clients that are given up in the middle of their replies."""
        for job in jobs:
            assert job.message is not None, "those that reply have something to send"
            latency = float(self._links(torch.tensor([job.client])).latency)
            sent = (now - job.worked) / max(job.arrives - latency - job.worked, 1e-300)
            share = min(max(sent, 0.0), 1.0)
            ledger = with_more_up(
                ledger, *((share * count(job.message)).long() for count in (frame_nbytes, frame_paper_nbytes))
            )
        return ledger


def _tidy(clock: JobClock) -> JobClock:
    """The clock without versions that nobody has yet to work on."""
    wanted = {job.version for job in clock.under_way if job.message is None and job.worked < inf}
    return replace(clock, versions={version: clock.versions[version] for version in clock.versions.keys() & wanted})


def _clock(state: RunState) -> JobClock:
    assert isinstance(state.clock, JobClock), "a run on a network has a clock"
    return state.clock
