"""Whom the server asks: clients that are idle, and that can be reached, if it knows who can."""

from __future__ import annotations

import torch
from torch import Tensor

from fedcef.core.errors import RunError
from fedcef.core.network import Network
from fedcef.core.round import Rounds
from fedcef.simulation.network.population import Population

_LONGEST_WAIT = 100_000  # changes of who is there, without anybody


def ask(
    rounds: Rounds,
    population: Population,
    network: Network,
    number: int,
    at: float,
    wanted: int,
    attempt: int = 0,
    busy: Tensor | None = None,
) -> tuple[Tensor, float]:
    """Up to `wanted` clients for a round, ascending, and the time: later if nobody was there and nobody is at work.

    Where everyone is there and idle they are drawn as in a run without a network.  The cost is in proportion to those
    wanted and at work, over the share of clients that can be asked.

    Args:
        rounds: Who is drawn in which round.
        population: Who can be reached when.
        network: Whether the server knows who can.
        number: Of the round.
        at: The time.
        wanted: How many.
        attempt: Another one draws others.
        busy: Clients that are at work already.
    """
    working = 0 if busy is None else len(busy)
    for _ in range(_LONGEST_WAIT):
        size = min(wanted + working, rounds.num_clients)
        while True:
            idle = drawn = rounds.cohort(number, size, attempt) if size else torch.zeros(0, dtype=torch.int64)
            if busy is not None:
                idle = idle[~torch.isin(idle, busy)]
            if network.unavailable == "not_drawn" and not population.always_there:
                idle = idle[population.available(idle, at).to(idle.device)]
            if len(idle) >= wanted or len(drawn) == rounds.num_clients:
                break
            size = min(4 * size, rounds.num_clients)
        if len(idle) or working or not wanted:
            return rounds.some_of(idle, number, wanted, attempt), at
        at = population.next_change(at)
    raise RunError(f"Nobody can be reached until {at:.0f} s on the network's clock; make clients available for longer.")
