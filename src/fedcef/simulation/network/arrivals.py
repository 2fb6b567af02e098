"""Which of the clients that were asked take part in a round, and when it ends.

A round wants so many replies, and ends with the last of these.  With a deadline it ends there, if that is earlier and
enough have arrived; if not, with the reply that makes them enough.  Of replies at the same moment those of the clients
with smaller numbers come first.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedcef.core.network import Network


class Arrivals(NamedTuple):
    """How a round ended."""

    rows: Tensor
    """Which of the clients asked are in it, by their places, in ascending order."""
    seconds: float
    """How long it lasted."""


def arrivals(arrived: Tensor, wanted: int, network: Network) -> Arrivals | None:
    """The end of a round whose replies arrive at these times, (S,) in seconds, inf for those that never do.

    None if too few ever do, so that the deadline passes and the round must be tried again.
    """
    order = torch.argsort(arrived, stable=True)
    times = arrived[order].tolist()
    here = sum(time < torch.inf for time in times)
    wanted, at_least = min(wanted, len(times)), min(network.at_least, wanted, len(times))
    if here < at_least:
        return None
    taken = min(wanted, here)
    end = times[taken - 1] if taken == wanted else torch.inf
    if network.deadline and end > network.deadline:
        in_time = sum(time <= network.deadline for time in times)
        taken = min(max(in_time, at_least), wanted)
        end = max(network.deadline, times[taken - 1])
    return Arrivals(order[:taken].sort().values, end)
