"""The virtual clock of a run, and what it remembers from round to round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State


class Clock(ABC):
    """What time it is on the network, and what is under way there: a value, part of the run's state, on the host."""

    seconds: float
    """Since the run began."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """For the record of the round that ended now."""

    @abstractmethod
    def state(self) -> State:
        """As named tensors, for a snapshot."""

    @abstractmethod
    def restored(self, state: Mapping[str, Tensor]) -> Self:
        """The clock that `state` gave these tensors for; raises KeyError if one is missing."""


@dataclass(frozen=True, eq=False)
class RoundClock(Clock):
    """Between two rounds: who is asked next, and what these must get before they can begin."""

    seconds: float
    begins: float
    """When the next round does: now, or as soon as someone can be reached."""
    asked: Tensor
    """The clients of the next round, (S,) int64."""
    due: Tensor
    """How many bytes each of them is sent first, (S,) int64."""
    arrivals: int = 0
    """How many replies made the last round."""

    def record(self) -> dict[str, Any]:
        """The time so far, and how many replies made the last round."""
        return {"sim_s": round(self.seconds, 6), "arrivals": self.arrivals}

    def state(self) -> State:
        """All of it."""
        return {
            "times": torch.tensor([self.seconds, self.begins], dtype=torch.float64),
            "asked": self.asked,
            "due": self.due,
            "arrivals": torch.tensor(self.arrivals),
        }

    def restored(self, state: Mapping[str, Tensor]) -> RoundClock:
        """The same clock from a snapshot."""
        seconds, begins = state["times"].tolist()
        asked = state["asked"].to(self.asked.device)
        return RoundClock(seconds, begins, asked, state["due"].cpu(), int(state["arrivals"]))
