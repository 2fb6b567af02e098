"""A run in memory: the state, moved on round by round."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedcef.algorithms.aggregating import Aggregator
from fedcef.algorithms.algorithm import Algorithm, Message, State
from fedcef.algorithms.statistics import carrying
from fedcef.compressors import Auto
from fedcef.core.errors import ConfigError, DivergedError, ProblemError
from fedcef.core.interrupts import uninterrupted
from fedcef.core.precision import matrix_units
from fedcef.core.round import Rounds
from fedcef.core.threads import is_small, single_thread
from fedcef.core.training import Training
from fedcef.oracles.oracle import GradientOracle, make_oracle
from fedcef.problems.problem import Problem
from fedcef.simulation.aiming import hear, is_over
from fedcef.simulation.attacks import attacker_for, poisoned
from fedcef.simulation.averaging import trained_model, trained_statistics
from fedcef.simulation.budget import Budget, Spender, ladder, rehearse
from fedcef.simulation.capture import Captured, Memory
from fedcef.simulation.choosing import Chooser, begin
from fedcef.simulation.client_states import States
from fedcef.simulation.cohorts import check_cohorts, weigh
from fedcef.simulation.engine import Engine, Play
from fedcef.simulation.ledger import Ledger
from fedcef.simulation.network.playing import play_on, population_of, started_clock
from fedcef.simulation.seats import Seated
from fedcef.simulation.spending import Spending
from fedcef.simulation.state import RunState
from fedcef.simulation.stores import Store
from fedcef.simulation.workers import Chunked, Whole, Workers, workers_for


class Simulation:
    """The replica, the server's and all clients' states and the bytes so far, moved on by `step()`.

    Everything random is a function of (seed, round, client), so `round` and `state` are all that is needed to go on.

    On a GPU the first round is run as it is written and the second is recorded as a CUDA graph, which is all that later
    rounds replay.  From then on the states stay in the same memory: a round overwrites those of the round before.

    >>> simulation = Simulation(problem, FedCEF(local_lr=0.1), batch_size=32, clip_norm=5.0)
    >>> simulation.step()
    >>> simulation.ledger.totals()
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        training: Training | None = None,
        *,
        gradients: GradientOracle | None = None,
        weights: Tensor | None = None,
        client_states: States | None = None,
        folder: Path | None = None,
        workers: Workers | None = None,
        **options: Any,
    ) -> None:
        """A run that has not begun.

        Args:
            problem: What is minimised.
            algorithm: The method; its regulariser is the problem's, its compressors are fitted to the model.
            training: All other options; or give them by name (`seed=1, batch_size=32, …`).
            gradients: How gradients are computed, in place of what `training.oracle` names.
            weights: How each client counts in the mean, (N,), in place of what `training.weighting` says.
            client_states: Where the clients' states are kept, in place of what `training.store` says.
            folder: Where they may be kept on a disk; a passing one where none is given.
            workers: Who does the clients' work, in place of what `training.workers` and `training.cohort_chunk` say.
        """
        if training is not None and options:
            raise ConfigError("Give either a Training or its options by name, not both.")
        if not problem.num_clients:
            raise ProblemError("The problem has no clients to simulate; it is a server's.")
        training = training if training is not None else Training(**options)
        if training.precision == "float64" and problem.z0.dtype != torch.float64:
            problem = problem.to(problem.z0.device, torch.float64)
        rounds = Rounds(training, problem.num_clients, problem.z0.device)
        algorithm = algorithm.for_share(rounds.share)
        check_cohorts(algorithm, rounds, problem, weights is not None or training.weighting == "samples")
        self._auto = algorithm.compressor if isinstance(algorithm.compressor, Auto) else None
        if self._auto:
            algorithm = begin(algorithm, rounds, problem.dim)
        algorithm = carrying(algorithm, problem.running_statistics)
        gradients = gradients if gradients is not None else make_oracle(poisoned(problem, training), training)
        self.problem, self.algorithm, self.training = problem, algorithm, training
        workers = workers_for(training, workers, chooses=self._auto is not None)
        attacker, weigher = attacker_for(rounds), weigh(problem, training, weights)
        rule = Aggregator.of(algorithm, rounds, problem.z0, remembers=attacker is not None and attacker.looks)
        self.engine = Engine(algorithm, rounds, gradients, weigher, workers, rule, attacker)
        workers.check(self.engine)
        whole = rounds.share == 1 and not training.cohort_chunk  # a table is made anew with every cohort or chunk
        store = client_states if client_states is not None else Store(training.store, whole, folder)
        averages, states = training.averaging > 0, workers.states(store)
        state = RunState.start(
            algorithm, problem.z0, rounds.num_clients, states, averaging=averages, kept=rule.start(problem.z0)
        )
        levels = ladder(algorithm, problem.dim) if training.budget and not self._auto else ()
        if levels:
            costs = rehearse(levels, rounds.cohort_size, problem.num_clients, problem.z0)
            state = replace(state, spending=Spending.start(costs))
        self._population = population_of(self.engine)
        state = replace(state, clock=started_clock(self.engine, self._population))
        here = isinstance(workers, Whole | Chunked) and self._population is None
        self._reads_ahead = here and not problem.data.captures  # by the host: the next cohort while this one computes
        self._at = (0, state)  # together, so that an interrupt finds both of the same round
        self._levels = levels
        self._begin()
        if self._chooser:
            self._at = (0, replace(state, spending=self._chooser.start()))

    def _begin(self) -> None:
        """Rounds as they are written or recorded, at one level or at those of a budget; recordings begin anew."""
        training, engine, z0 = self.training, self.engine, self.problem.z0
        captures = engine.gradients.captures and self.problem.regularizer.captures and engine.workers.captures
        captures = captures and (self.state.clients.captures or isinstance(engine.workers, Whole))  # seats are for all
        captures = captures and self._population is None and engine.is_plain  # who has arrived is read back
        memory = Memory(z0.device) if training.cuda_graphs and z0.is_cuda and captures else None
        on_host = Rounds(training, self.problem.num_clients)

        def player(algorithm: Algorithm) -> Play:
            mine = replace(engine, algorithm=algorithm)
            if memory is None:
                return play_on(self._population, mine)
            recorded = Captured(mine.play, memory)
            return recorded if self.state.clients.captures else Seated(recorded, on_host)

        self.is_captured = memory is not None
        self.spender: Spender | None = None
        self._chooser: Chooser | None = None
        if self._auto:
            self._chooser = Chooser(engine, z0, self._auto.target, player, overwrites=self.is_captured)
            self._play: Play = self._chooser.play
            return
        if not self._levels:
            self._play = player(self.algorithm)
            return
        budget = Budget(training.budget, training.rounds, training.budget_tilt)
        plays = [player(level.algorithm) for level in self._levels]
        self.spender = Spender(budget, self._levels, plays, overwrites=self.is_captured)
        self._play = self.spender.play

    @property
    def round(self) -> int:
        """How many rounds are over, which is the number of the next one."""
        return self._at[0]

    @property
    def state(self) -> RunState:
        """The state after that many rounds."""
        return self._at[1]

    def step(self) -> Message:
        """One round; returns its down-message."""
        round_, state = self._at
        whole = uninterrupted() if self.is_captured else nullcontext()  # a recorded round overwrites its state
        if self._reads_ahead and round_ + 1 < self.training.rounds:
            self.problem.data.prefetch(self.engine.rounds.cohort(round_ + 1))
        with torch.no_grad(), matrix_units(self.training.precision), self.on_device(), self.threads(), whole:
            state, down = self._play(state, round_)
            self._at = (round_ + 1, state)
        return down

    def threads(self) -> AbstractContextManager[None]:
        """One torch thread where vectors are small."""
        rounds = self.engine.rounds
        rows = rounds.cohort_size if rounds.is_population else rounds.num_clients
        return single_thread(when=is_small(rows * self.problem.dim))

    def on_device(self) -> AbstractContextManager[object]:
        """The problem's GPU as the current one, so that streams, events and graphs are there."""
        device = self.problem.z0.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    @property
    def replica(self) -> State:
        """What the server and every up-to-date client know alike."""
        return self.state.replica

    @property
    def server(self) -> State:
        """What the server alone knows."""
        return self.state.server

    @property
    def clients(self) -> State:
        """What a snapshot keeps of the clients' states: a table (N, p) for each name, rows of those seen, or a mark in
        a file; `state.clients.take` gives those of some clients."""
        return self.state.clients.tensors()

    @property
    def ledger(self) -> Ledger:
        """The bytes so far."""
        return self.state.ledger

    def parts(self) -> dict[str, State]:
        """Everything that the next round needs, by who holds it: what a snapshot keeps."""
        spending, clock = self.state.spending, self.state.clock
        budget = {"budget": spending.state()} if spending else {}
        return {**self.state.parts(), **budget, **({"network": clock.state()} if clock else {})}

    def restore(self, round_: int, parts: Mapping[str, State]) -> None:
        """Go on after `round_` rounds from what `parts()` gave, on any device."""
        state = self.state.with_parts(parts)
        state = replace(state, spending=Spending.of(parts["budget"])) if state.spending else state
        state = replace(state, clock=state.clock.restored(parts["network"])) if state.clock else state
        self._at = (round_, state)
        self._begin()

    def ratios(self) -> dict[str, float | None]:
        """What a byte budget or the run's own choice let the last round keep; nothing without one."""
        spending, spender = self.state.spending, self._current_spender()
        return spender.ratios(spending) if spender and spending else {}

    def clock(self) -> dict[str, Any]:
        """What the record says of a simulated network after the last round; nothing without one."""
        return self.state.clock.record() if self.state.clock else {}

    def current_engine(self) -> Engine:
        """The engine as it played the last round: with the ratios that were chosen for it, if any were."""
        spending, spender = self.state.spending, self._current_spender()
        if spending is None or spender is None or spending.level < 0:
            return self.engine
        return replace(self.engine, algorithm=spender.levels[spending.level].algorithm)

    def _current_spender(self) -> Spender | None:
        spending = self.state.spending
        return self._chooser.spender(spending) if self._chooser and spending else self.spender

    def notes(self) -> tuple[str, ...]:
        """What is to be told of the last round."""
        return self.state.spending.notes if self.state.spending else ()

    def chosen(self) -> str:
        """What the run chose by itself, in a sentence; nothing where it chooses nothing or has not yet."""
        spending = self.state.spending
        return self._chooser.sentence(spending) if self._chooser and spending and spending.choice else ""

    @property
    def listens(self) -> bool:
        """Whether the records of its rounds decide how it goes on, so that it must not be ahead of them."""
        return bool(self._auto and self._auto.target)

    @property
    def is_done(self) -> bool:
        """Whether the run ends before its last round: the target is reached, or it has had the rounds it planned."""
        return self._auto is not None and is_over(self.state.spending, self._auto.target, self.round)

    def hear(self, record: Mapping[str, Any]) -> str:
        """The record of the last round, for a run with a target; returns what is to be said of it, mostly nothing."""
        round_, state = self._at
        if not self.listens or self._chooser is None or state.spending is None:
            return ""
        spending, said = hear(self._chooser, state.spending, record)
        self._at = (round_, replace(state, spending=spending))
        return said

    def progress(self) -> dict[str, Tensor]:
        """The bytes so far and whether all numbers are finite, on the device."""
        return {**self.ledger.on_device(), "finite": self.state.finite}

    def model(self) -> Tensor:
        """The trained model so far, (p,): the current point, or the running mean."""
        return trained_model(self.state.average, self.algorithm.trained(self.replica, self.state.server))

    def statistics(self) -> Tensor | None:
        """The running statistics that go with that model, (q,), where they are averaged."""
        return trained_statistics(self.state.average, self.replica)

    def diagnostics(self) -> dict[str, Tensor]:
        """The method's own scalars for the record, on the device; none that would look at a whole population."""
        if self.engine.rounds.is_population or type(self.algorithm).diagnostics is Algorithm.diagnostics:
            return {}
        return self.algorithm.diagnostics(self.replica, self.state.clients.mean())

    def check_finite(self) -> None:
        """Stop a run whose numbers have overflowed."""
        if not bool(self.state.finite):
            raise self.diverged(self.round)

    def diverged(self, round_: int, how: str = "left values that are not finite numbers") -> DivergedError:
        """What to say of a run whose numbers overflowed in a round, and what to try."""
        a, clip = self.algorithm, self.training.clip_norm
        return DivergedError(
            f"{type(a).__name__} diverged: round {round_} {how}.  "
            f"Try a smaller local_lr (now {a.local_lr:g}), gradient clipping (clip_norm, now "
            f"{clip or 'off'}), fewer local_steps (now {a.local_steps}), or the same step with a "
            f"smaller local_lr and a larger server_lr (now {a.server_lr:g})."
        )
