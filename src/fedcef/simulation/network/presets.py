"""Usual speeds of links, for the median client; docs/network.md says where they come from."""

from __future__ import annotations

from typing import NamedTuple

from fedcef.core.network import Preset


class Speeds(NamedTuple):
    """What a link can do."""

    down_mbit: float
    up_mbit: float
    latency_ms: float
    """One way: half of a round trip."""


PRESETS: dict[Preset, Speeds] = {
    "3g": Speeds(1.6, 0.768, 75.0),
    "lte": Speeds(12.0, 12.0, 35.0),
    "5g": Speeds(166.0, 21.0, 15.0),
    "wifi": Speeds(84.0, 38.0, 10.0),
    "office": Speeds(100.0, 100.0, 2.0),
    "data_centre": Speeds(10_000.0, 10_000.0, 0.25),
}
