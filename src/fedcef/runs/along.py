"""What the other processes of a run do while the first one writes its folder: the same rounds, and nothing else.

Each computes its part of every round (`fedcef.simulation.workers`) and holds the same model, so that all it has to hear
from the first is where the run begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor

from fedcef.runs.facts import message_facts
from fedcef.runs.folder import Snapshot
from fedcef.runs.loop import Loop
from fedcef.runs.measures import Measuring
from fedcef.runs.reader import Record
from fedcef.runs.settings import Settings
from fedcef.runs.sinks import Sink
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.workers import team

T = TypeVar("T")


def is_first() -> bool:
    """Whether this is the process of the run that writes and prints: the first of several, or the only one."""
    processes = team()
    return processes is None or processes.is_first


def share(thing: T) -> T:
    """Have the other processes `hear` something of the first; returns it."""
    processes = team()
    return thing if processes is None else processes.from_first(lambda: thing)


def hear() -> Any:
    """What the first process shares next."""
    return share(None)


def run_along(settings: Settings) -> Record:
    """Take part in a run that the first process begins or goes on with; it writes, and this one returns nothing."""
    if hear():  # it is finished
        return {}
    problem = settings.build_problem()
    simulation = Simulation(problem, settings.build_algorithm(problem), settings)
    snapshot: Snapshot | None = hear()
    if snapshot is not None:
        simulation.restore(snapshot[0], by_part(snapshot[1]))
    loop = Loop(simulation, Measuring(simulation.problem, simulation.algorithm.step, settings), Nowhere())
    loop.to_the_end(hear())
    if loop.down is not None:
        message_facts(simulation, loop.down)
    return {}


class Nowhere(Sink):
    """Keeps nothing, but asks for all that a folder would be given: the first process collects it from all."""

    keeps_rounds = True

    def record(self, record: Record) -> None:
        """Not kept."""

    def note(self, round_: int, sentence: str) -> None:
        """Not kept."""


def by_part(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """What a snapshot holds, by who holds it in a run."""
    parts: dict[str, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        part, _, name = path.partition("/")
        parts.setdefault(part, {})[name] = tensor
    return parts


def without_clients(snapshot: Snapshot | None) -> Snapshot | None:
    """What the other processes are told of a snapshot; each gets the states of its own clients when it restores."""
    if snapshot is None:
        return None
    return snapshot[0], {name: tensor for name, tensor in snapshot[1].items() if not name.startswith("clients/")}
