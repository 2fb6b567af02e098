"""Simulated network time: what the rounds of a run would take over links of a stated speed.

A round takes

    latency + bytes down / N / downlink + bytes up / N / uplink (+ the wall time that was measured / N)

where the bytes are those of the wire, N is the number of clients that take part in a round, and all links are alike.
Computing counts only where it is asked for, and then per client: the wall time is that of one machine that does the
work of all N, who in the field would work side by side.
Everything is summed over the rounds so far, so that the bytes so far are all it needs.  `page.js` computes the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fedcef.report.data.records import Column


@dataclass(frozen=True)
class ClientLink:
    """The link of every client, and whether computing counts."""

    up_mbit: float = 1.0  # per second
    down_mbit: float = 10.0
    latency_ms: float = 50.0  # per round, both ways together
    compute: bool = False

    def seconds(self, x: Mapping[str, Column], participants: float) -> Column:
        """The time so far, from the columns of a curve."""
        up, down = x["wire_up_bytes"], x["wire_bytes"] - x["wire_up_bytes"]
        sent = 8e-6 / participants * (up / self.up_mbit + down / self.down_mbit)
        return self.latency_ms / 1e3 * x["round"] + sent + (x["wall_s"] / participants if self.compute else 0.0)
