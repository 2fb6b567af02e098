"""The options of a simulated network: the section `network`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fedcef.core.ranges import Count, Fraction, NonNegative, NotNegative, Positive

Preset = Literal["3g", "lte", "5g", "wifi", "office", "data_centre"]
"""Kinds of links whose usual speeds are known here; see docs/network.md for where the numbers come from."""


class Network(BaseModel):
    """What the clients' links and machines are like, and how long the server waits for them.

    Nothing of this changes what a client computes.  It decides what time it is on the virtual clock, and who arrives.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mode: Literal["rounds", "async"] = "rounds"
    """Rounds that the server waits for, or a server that steps whenever `buffer` replies are in."""

    preset: Preset = "lte"
    """What the median client's link is like."""
    up_mbit: NonNegative = 0.0
    """Mbit/s of the median client's uplink; 0 = the preset's."""
    down_mbit: NonNegative = 0.0
    """Mbit/s of its downlink; 0 = the preset's."""
    latency_ms: NonNegative | None = None
    """Milliseconds that a message takes one way, beside its bytes; None = the preset's."""
    spread: NonNegative = 0.5
    """How unequal links are: the standard deviation of the logarithm of a client's speed, and of its latency."""
    step_s: NonNegative = 0.05
    """Seconds of a local step on the median client."""
    step_spread: NonNegative = 0.5
    """How unequal machines are, as `spread` for links."""
    overhead_s: NonNegative = 0.0
    """Seconds that a client needs for a round whatever its size: to wake up, to start a process, to ask for work."""
    server_mbit: NonNegative = 0.0
    """Mbit/s of the server's own link each way, shared evenly by all that are at work; 0 = no limit."""
    trace: str = ""
    """A CSV file with each client's own numbers, in place of all of the above but `overhead_s` and `server_mbit`."""

    availability: Fraction = 1.0
    """The share of clients that can be reached at any time."""
    availability_s: Positive = 600.0
    """For so many seconds a client is there or away; then that is drawn anew."""
    unavailable: Literal["not_drawn", "silent"] = "not_drawn"
    """Whether the server knows who is away and asks others, or asks them and gets no answer."""

    over_selection: Annotated[float, Field(ge=1, le=100)] = 1.0
    """How many times as many clients are asked as take part; the first to arrive do."""
    deadline: NonNegative = 0.0
    """Seconds after which a round goes on without those that have not arrived; in the asynchronous mode, after which a
    client is given up.  0 = none."""
    at_least: Count = 1
    """How many must have arrived for that; the deadline waits for them."""

    concurrency: NotNegative = 0
    """Asynchronous mode: how many clients are at work at any time; 0 = as many as take part in a round."""
    buffer: Count = 10
    """Asynchronous mode: how many replies make a step of the server."""
    discount: NonNegative = 0.5
    """Asynchronous mode: a change that is a steps old counts 1/(1 + a)^discount; 0 counts all alike."""
