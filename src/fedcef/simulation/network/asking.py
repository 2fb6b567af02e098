"""Whom the server asks in a round: more than it needs, if it is told to, and those that can be reached, if it knows."""

from __future__ import annotations

from math import ceil

from torch import Tensor

from fedcef.core.errors import RunError
from fedcef.core.network import Network
from fedcef.core.round import Rounds
from fedcef.simulation.network.population import Population

_LONGEST_WAIT = 100_000  # changes of who is there, without anybody


def number_asked(rounds: Rounds, network: Network) -> int:
    """How many clients a round asks."""
    return min(ceil(network.over_selection * rounds.cohort_size), rounds.num_clients)


def ask(
    rounds: Rounds, population: Population, network: Network, number: int, at: float, attempt: int = 0
) -> tuple[Tensor, float]:
    """The clients that a round asks at a time, ascending, and the time itself: later if nobody was there.

    Where everyone is there and no more are asked than take part, it is the cohort of a run without a network.  The cost
    is in proportion to those asked, over the share of clients that are there.
    """
    wanted = number_asked(rounds, network)
    if population.always_there or network.unavailable == "silent":
        return rounds.cohort(number, wanted, attempt), at
    for _ in range(_LONGEST_WAIT):
        there = reachable(rounds, population, number, at, wanted, attempt)
        if len(there):
            return rounds.some_of(there, number, wanted, attempt), at
        at = population.next_change(at)
    raise RunError(f"Nobody can be reached until {at:.0f} s on the network's clock; make clients available for longer.")


def reachable(rounds: Rounds, population: Population, number: int, at: float, wanted: int, attempt: int = 0) -> Tensor:
    """At least `wanted` clients that are there at this time, or all of them if they are fewer."""
    size = min(2 * wanted, rounds.num_clients)
    while True:
        candidates = rounds.cohort(number, size, attempt)
        there = candidates[population.available(candidates, at).to(candidates.device)]
        if len(there) >= wanted or size == rounds.num_clients:
            return there
        size = min(4 * size, rounds.num_clients)
