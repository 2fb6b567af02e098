"""What a run with a byte budget remembers of its costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.compressors import TopK
from fedcef.compressors.value_coders import ValueCoder

VALUES: tuple[ValueCoder, ...] = ("sign", "log3", "uniform4", "native")
"""How kept values may travel if the run chooses; a snapshot has their numbers, so that none may change its place."""


class Way(NamedTuple):
    """How vectors are compressed in one direction: by Top-k."""

    ratio: float
    values: ValueCoder

    @property
    def compressor(self) -> TopK:
        """Top-k with these options."""
        return TopK(ratio=self.ratio, values=self.values)


class Choice(NamedTuple):
    """What a run chose for itself."""

    up: Way
    down: Way | None
    """None: the method has no compressor on the way down."""

    def state(self) -> State:
        """As named tensors, for a snapshot."""
        ways = [way for way in self if way is not None]
        return {
            "chosen_ratios": torch.tensor([way.ratio for way in ways], dtype=torch.float64),
            "chosen_values": torch.tensor([VALUES.index(way.values) for way in ways]),
        }

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> Choice:
        """From named tensors, as `state` gave them."""
        numbers = zip(state["chosen_ratios"].tolist(), state["chosen_values"].tolist(), strict=True)
        up, *down = [Way(ratio, VALUES[values]) for ratio, values in numbers]
        return cls(up, down[0] if down else None)


class Heard(NamedTuple):
    """The test accuracy that a run with a target looked at last."""

    round: int
    accuracy: float


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
    choice: Choice | None = None
    """What a run that chooses by itself has chosen; None: nothing yet."""
    heard: Heard | None = None
    """What a run with a target compares its next accuracy with."""
    ends: int = 0
    """After how many rounds a run ends that plans fewer than it was given; 0: it has them all."""

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
        chosen = {} if self.choice is None else self.choice.state()
        heard = {} if self.heard is None else {"heard": torch.tensor(self.heard, dtype=torch.float64)}
        chosen |= {"ends": torch.tensor(self.ends)} if self.ends else {}
        return {name: torch.tensor(value, dtype=torch.int64) for name, value in known.items()} | chosen | heard

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> Spending:
        """From named tensors, as `state` gave them."""
        rehearsed, measured = tuple(state["rehearsed"].tolist()), tuple(state["measured"].tolist())
        return cls(
            rehearsed,
            measured,
            int(state["level"]),
            bool(state["warned"]),
            choice=Choice.of(state) if "chosen_ratios" in state else None,
            heard=Heard(int(state["heard"][0]), float(state["heard"][1])) if "heard" in state else None,
            ends=int(state["ends"]) if "ends" in state else 0,
        )
