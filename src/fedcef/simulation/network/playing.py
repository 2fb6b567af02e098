"""From the options of a network to what plays on it."""

from __future__ import annotations

from typing import Protocol

from fedcef.algorithms.algorithm import Message
from fedcef.simulation.engine import Engine, Play
from fedcef.simulation.network.asynchronous import Asynchronous
from fedcef.simulation.network.checks import check_network
from fedcef.simulation.network.clock import Clock
from fedcef.simulation.network.population import Drawn, Population
from fedcef.simulation.network.timed_rounds import TimedRounds
from fedcef.simulation.network.trace import Trace
from fedcef.simulation.state import RunState


class Player(Protocol):
    """Plays rounds on a network."""

    def start(self) -> Clock:
        """The clock before the first round."""
        ...

    def play(self, state: RunState, number: int) -> tuple[RunState, Message]:
        """The next round, as the engine's `play`."""
        ...


def population_of(engine: Engine) -> Population | None:
    """The clients of a run on a network, if it is on one; refuses a network that does not suit the run."""
    rounds = engine.rounds
    network = rounds.training.network
    if network is None:
        return None
    drawn = Drawn(network, rounds.training.seed)
    population = Trace.read(network.trace, rounds.num_clients) if network.trace else drawn
    check_network(network, engine, population)
    return population


def started_clock(engine: Engine, population: Population | None) -> Clock | None:
    """The clock before the first round; None without a network."""
    return None if population is None else _player(engine, population).start()


def play_on(population: Population | None, engine: Engine) -> Play:
    """The engine's rounds among these clients, or as they are without a network."""
    return engine.play if population is None else _player(engine, population).play


def _player(engine: Engine, population: Population) -> Player:
    network = engine.rounds.training.network
    assert network is not None, "there are such clients on a network only"
    kind = Asynchronous if network.mode == "async" else TimedRounds
    return kind(engine, network, population)
