"""How long a client's round takes, from its link, its machine and the bytes that it gets and sends.

A client i that is sent D bytes, takes K local steps and replies with U bytes is done

    latency_i + 8·D/down_i + overhead + K·step_i + 8·U/up_i + latency_i

seconds after the server asked it.  Bytes are those of our frames, as the ledger counts them.  Left out are TCP's slow
start and what TCP, TLS and HTTP put around a frame, and that clients get in each other's way: on the server's link they
do only by an even share of its capacity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor


class Timing(NamedTuple):
    """When the clients of a round get how far, in seconds from its start: (S,) each."""

    worked: Tensor
    """The reply begins to be sent."""
    sent: Tensor
    """Its last byte has left the client."""
    arrived: Tensor
    """It is at the server."""

    def share_sent(self, end: float) -> Tensor:
        """How much of each reply has left its client when the round ends, from 0 to 1."""
        took = (self.sent - self.worked).clamp(min=1e-300)  # a reply that takes no time is sent or not
        return ((end - self.worked) / took).clamp(0, 1)


@dataclass(frozen=True, eq=False)
class Links:
    """The links and machines of some clients: (S,) float64 each, on the host."""

    up: Tensor
    """Bit/s."""
    down: Tensor
    """Bit/s."""
    latency: Tensor
    """Seconds, one way."""
    step: Tensor
    """Seconds of a local step."""

    def within(self, capacity: float) -> Links:
        """These links if none may be faster than the server's share for it, in bit/s; 0 = no limit."""
        if not capacity:
            return self
        return replace(self, up=self.up.clamp(max=capacity), down=self.down.clamp(max=capacity))

    def timing(self, down: Tensor, steps: int, up: Tensor, overhead: float = 0.0) -> Timing:
        """When replies of so many bytes are sent and arrive, by clients that are sent so many and take `steps`."""
        worked = self.latency + 8 * down / self.down + overhead + steps * self.step
        sent = worked + 8 * up / self.up
        return Timing(worked, sent, sent + self.latency)
