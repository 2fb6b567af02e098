"""Who the clients are: each one's link and machine, and when it can be reached.

`Drawn` computes what is asked for from the run's seed and the client's number, so that a million clients take no memory
and cost nothing before they are asked; `trace.Trace` reads it from a file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import floor

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.core.network import Network
from fedcef.core.rng import Purpose
from fedcef.simulation.network.links import Links
from fedcef.simulation.network.presets import PRESETS, Speeds


class Population(ABC):
    """All clients."""

    @property
    @abstractmethod
    def always_there(self) -> bool:
        """Whether everyone can be reached at any time."""

    @abstractmethod
    def links(self, clients: Tensor) -> Links:
        """The links of the given clients, (S,), in their order."""

    @abstractmethod
    def available(self, clients: Tensor, at: float) -> Tensor:
        """Which of the given clients can be reached at a time: bool (S,)."""

    @abstractmethod
    def next_change(self, at: float) -> float:
        """The first time after this one at which others may be available."""


@dataclass(frozen=True)
class Drawn(Population):
    """Clients whose speeds are drawn around a median, log-normally.

    A client has one factor for both directions of its link, one for its latency and one for its machine.
    """

    network: Network
    seed: int

    @property
    def always_there(self) -> bool:
        """Whether the availability is 1."""
        return self.network.availability == 1

    @property
    def speeds(self) -> Speeds:
        """Of the median client."""
        net = self.network
        preset = PRESETS[net.preset]
        latency = preset.latency_ms if net.latency_ms is None else net.latency_ms
        return Speeds(net.down_mbit or preset.down_mbit, net.up_mbit or preset.up_mbit, latency)

    def links(self, clients: Tensor) -> Links:
        """From the clients' keys."""
        net, speeds = self.network, self.speeds
        link, latency, machine = rng.normal(rng.data_key(self.seed, Purpose.NETWORK, clients.cpu()), 3).unbind(-1)
        faster = torch.exp(net.spread * link)
        return Links(
            up=1e6 * speeds.up_mbit * faster,
            down=1e6 * speeds.down_mbit * faster,
            latency=1e-3 * speeds.latency_ms * torch.exp(net.spread * latency),
            step=net.step_s * torch.exp(net.step_spread * machine),
        )

    def available(self, clients: Tensor, at: float) -> Tensor:
        """From the clients' keys for the period that it is."""
        if self.always_there:
            return torch.ones(len(clients), dtype=torch.bool)
        key = rng.data_key(self.seed, Purpose.AVAILABILITY, clients.cpu(), self._period(at))
        return rng.uniform(key, 1).squeeze(-1) < self.network.availability

    def next_change(self, at: float) -> float:
        """The beginning of the next period."""
        return (self._period(at) + 1) * self.network.availability_s

    def _period(self, at: float) -> int:
        return floor(at / self.network.availability_s)
