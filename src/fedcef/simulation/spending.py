"""What a run with a byte budget remembers of its costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State


@dataclass(frozen=True)
class Spending:
    """What the next choice depends on besides the ledger: a value, part of the run's state."""

    rehearsed: tuple[int, ...]
    """About how many bytes a round costs at each level."""
    measured: tuple[int, ...]
    """How many it cost, moved along with later measurements; 0: not known."""
    level: int = -1
    """Of the last round; -1: there was none yet."""
    warned: bool = False
    """Whether it was told that the budget is spent."""
    notes: tuple[str, ...] = ()
    """What is to be told of the last round."""

    @classmethod
    def start(cls, rehearsed: Sequence[int]) -> Spending:
        """Before the first round."""
        return cls(tuple(rehearsed), (0,) * len(rehearsed))

    def cost(self, level: int) -> float:
        """What a round is expected to cost at a level."""
        known = [i for i, cost in enumerate(self.measured) if cost]
        if not known:
            return float(self.rehearsed[level])
        near = min(known, key=lambda i: abs(i - level))
        return self.rehearsed[level] * self.measured[near] / self.rehearsed[near]

    def learn(self, level: int, cost: int) -> Spending:
        """Costs drift as training goes on: what was measured at other levels moves along with this one's."""
        drift = cost / self.measured[level] if self.measured[level] else 1.0
        measured = [round(drift * known) for known in self.measured]
        measured[level] = cost
        return replace(self, measured=tuple(measured))

    def state(self) -> State:
        """As named tensors, for a snapshot."""
        known = {"rehearsed": self.rehearsed, "measured": self.measured, "level": self.level, "warned": self.warned}
        return {name: torch.tensor(value, dtype=torch.int64) for name, value in known.items()}

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> Spending:
        """From named tensors, as `state` gave them."""
        rehearsed, measured = tuple(state["rehearsed"].tolist()), tuple(state["measured"].tolist())
        return cls(rehearsed, measured, int(state["level"]), bool(state["warned"]))
