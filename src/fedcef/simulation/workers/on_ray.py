"""The cohort split over actors of Ray, in one machine or a cluster of them.

An actor has the problem.  For a round it is given the replica and the states of some clients; it returns their
messages and the states that they propose, and forgets them.  All else is done, and kept, by the process that began the
run.  So an actor that is lost with its machine is started again somewhere else, and asked again, by Ray itself: the
work is a function of what it is given, and the result is the same.

Rows of states travel both ways, which they do not between the processes of `distributed.py`; but the work is balanced,
and the store may be any, as there is only one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from fedcef.algorithms.algorithm import Algorithm, Message, State
from fedcef.core.errors import ConfigError, FedcefError, RunError
from fedcef.core.extras import needed
from fedcef.core.precision import matrix_units
from fedcef.core.rng import Key
from fedcef.core.round import Round, Rounds
from fedcef.core.threads import share_cores
from fedcef.core.training import Training
from fedcef.oracles.oracle import ORACLES, make_oracle
from fedcef.problems.problem import Problem
from fedcef.simulation.client_states import ClientStates
from fedcef.simulation.state import RunState
from fedcef.simulation.workers.chunked import Chunked, InStore, part_of, tables
from fedcef.simulation.workers.scattered import block
from fedcef.simulation.workers.stacks import Gathering
from fedcef.simulation.workers.workers import Proposed, Workers, all_finite

if TYPE_CHECKING:
    from fedcef.simulation.engine import Engine

_PATIENCE_S = 300  # for actors that read data as they start
_TRIES = 3  # how often an actor is started again, and asked again


@dataclass(frozen=True)
class OnRay(Workers):
    """Has actors work for the cohort."""

    actors: int = 0
    """How many; 0 = one for each GPU of the cluster, or for each core if the problem is not on a GPU."""
    chunk: int = 0
    """How many clients an actor has in memory at a time; 0 = its whole share."""
    _crew: list[_Crew] = field(default_factory=list, repr=False, compare=False)  # none before the first round

    def check(self, engine: Engine) -> None:
        _actors(connected(), engine, self.actors)

    def work(self, engine: Engine, state: RunState, round_: Round) -> tuple[Message, Proposed]:
        crew = self._started(engine)
        parts = deque(self._parts(round_, len(crew.actors)))
        clients, messages, finite, rows = state.clients, Gathering(engine.wants_means), [], []
        task = crew.task(engine.algorithm, state.replica)
        asked: deque[tuple[Round, Any]] = deque()
        while parts or asked:
            while parts and len(asked) < len(crew.actors):
                part = parts.popleft()
                asked.append((part, task(part, clients.take(part.clients))))
            part, answer = asked.popleft()
            up, proposed = crew.answer(answer, state.finite.device)
            messages.take(up)
            rows.append(proposed)
            finite.append(all_finite(proposed))
            if self.chunk and not engine.drops:
                clients = clients.put(part.clients, rows.pop())
        if rows:
            return messages.message(), tables(rows)
        return messages.message(), self._in_store(clients, round_, finite)

    def first_message(self, engine: Engine, state: RunState, round_: Round) -> Message:
        return Chunked(1).first_message(engine, state, round_)

    def _parts(self, round_: Round, actors: int) -> Iterator[Round]:
        """What is asked of actors, in the order of the clients."""
        size = len(round_.clients)
        count = -(-size // self.chunk) if self.chunk else min(actors, size)
        for number in range(count):
            places = block(number, count, size)
            yield part_of(round_, slice(places.start, places.stop))

    def _in_store(self, clients: ClientStates, round_: Round, finite: list[torch.Tensor]) -> InStore:
        chunks = torch.split(round_.clients, self.chunk)
        return InStore(clients, chunks, torch.stack(finite).all())

    def _started(self, engine: Engine) -> _Crew:
        if not self._crew:
            self._crew.append(_Crew(engine, self.actors))
        return self._crew[0]


def installed_ray() -> Any:
    """The package, or a sentence that says how to get it."""
    return needed("ray", "workers = 'ray'", "ray")


def connected(**options: Any) -> Any:
    """Ray, with a cluster: that of RAY_ADDRESS or of this machine if there is one, else a new one for this process."""
    ray = installed_ray()
    if not ray.is_initialized():
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of what it will do some day
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error", **options)
    return ray


def _actors(ray: Any, engine: Engine, count: int) -> int:
    """How many actors there are to be, which the cluster must have room for."""
    if type(engine.gradients) not in ORACLES.values():
        raise ConfigError("Actors of Ray make their gradient oracle by its name; leave `gradients` out.")
    kind = "GPU" if engine.gradients.problem.z0.is_cuda else "CPU"
    there = int(ray.cluster_resources().get(kind, 0))
    count = count or there
    if not 1 <= count <= there:
        raise ConfigError(
            f"workers asks for {max(1, count)} actors, one for each {kind}, and Ray has {there} of them; ask for "
            "fewer, or start Ray with more."
        )
    return count


class _Crew:
    """Actors that know the problem."""

    def __init__(self, engine: Engine, count: int) -> None:
        self.ray = connected()
        problem, training = engine.gradients.problem, engine.rounds.training
        on_gpu = problem.z0.is_cuda
        count = _actors(self.ray, engine, count)
        actor = self.ray.remote(_Actor).options(
            num_cpus=0 if on_gpu else 1, num_gpus=int(on_gpu), max_restarts=_TRIES, max_task_retries=_TRIES
        )
        self._shared = self.ray.put((problem.to("cpu", problem.z0.dtype), training))  # also for those started later
        machines = len({node["NodeID"] for node in self.ray.nodes() if node["Alive"]})
        self.actors = [actor.remote(self._shared, problem.z0.device.type, -(-count // machines)) for _ in range(count)]
        started, waiting = self.ray.wait(
            [one.__ray_ready__.remote() for one in self.actors], num_returns=count, timeout=_PATIENCE_S
        )
        if waiting:
            raise RunError(
                f"Of {count} actors Ray has started {len(started)} within {_PATIENCE_S} seconds; others may hold its "
                f"{'GPU' if on_gpu else 'CPU'}s, so ask for fewer, or wait."
            )
        self._next = 0
        self._sent: tuple[Algorithm, Any] | None = None

    def task(self, algorithm: Algorithm, replica: State) -> Any:
        """ask(part, rows): has the next actor work for clients with these states."""
        if (
            self._sent is None or self._sent[0] is not algorithm
        ):  # the same for many rounds, and it may hold long vectors
            self._sent = algorithm, self.ray.put(algorithm)
        common = self._sent[1], self.ray.put(_state_to(replica, "cpu"))

        def ask(part: Round, rows: State) -> Any:
            actor = self.actors[self._next % len(self.actors)]
            self._next += 1
            return actor.work.remote(*common, _state_to(rows, "cpu"), _round_to(part, "cpu"))

        return ask

    def answer(self, asked: Any, device: torch.device) -> tuple[Message, State]:
        """What an actor has answered, on this device; what went wrong with it is one sentence."""
        errors = self.ray.exceptions
        try:
            up, rows = self.ray.get(asked)
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, FedcefError):
                raise type(cause)(str(cause)) from None
            raise RunError(f"An actor of Ray has failed with {type(cause).__name__}: {cause}") from error
        except errors.RayError as error:
            reason = str(error).strip().partition("\n")[0]
            raise RunError(f"An actor of Ray was lost {_TRIES} times ({reason}); see Ray's logs.") from None
        return {name: payload.to(device) for name, payload in up.items()}, _state_to(rows, device)


class _Actor:
    """Works for clients of one problem, on a device of its own; has no memory of them."""

    def __init__(self, shared: tuple[Problem, Training], device: str, beside: int) -> None:
        from fedcef.simulation.engine import Engine

        share_cores(beside)
        problem, training = shared
        self._problem, self._training = problem.to(device, problem.z0.dtype), training
        rounds = Rounds(training, problem.num_clients, self._problem.z0.device)
        self._engine = Engine(None, rounds, make_oracle(self._problem, training))  # type: ignore[arg-type]

    def work(self, algorithm: Algorithm, replica: State, rows: State, part: Round) -> tuple[Message, State]:
        """The messages of these clients, and the states that they propose."""
        device = self._problem.z0.device
        engine = replace(self._engine, algorithm=algorithm)
        with torch.no_grad(), matrix_units(self._training.precision):
            up, proposed = engine.local(_state_to(replica, device), _state_to(rows, device), _round_to(part, device))
        return {name: payload.to("cpu") for name, payload in up.items()}, _state_to(proposed, "cpu")


def _state_to(state: State, device: torch.device | str) -> State:
    return {name: vector.to(device) for name, vector in state.items()}


def _round_to(round_: Round, device: torch.device | str) -> Round:
    key = Key(round_.key.shared.to(device), round_.key.own.to(device), round_.key.part)
    return replace(round_, number=round_.number.to(device), clients=round_.clients.to(device), key=key)
