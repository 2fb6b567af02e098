"""The ledger of what is sent, in two columns: our own wire format's bytes and the paper's count.

Uplink: every participant's frame.  Downlink: the participants of the *next* round are brought up to date, each
by the frames that it missed or by a snapshot of the replica, whichever is smaller; with all clients in every
round that is one frame for each client and round, as the paper counts.  The first hand-out of the start point is
not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.wire import Dense, frame_nbytes, frame_paper_nbytes


class Sizes(NamedTuple):
    """The bytes of one round by one way of counting."""

    up: Tensor
    """Of each participant's up-message: (S,)."""
    down: Tensor
    """Of the down-message: ()."""
    snapshot: Tensor
    """Of the replica after the round, sent whole: ()."""


@dataclass(frozen=True, eq=False)
class Column:
    """Bytes so far by one way of counting; tensors, so that counting does not wait for the device."""

    up: Tensor
    """All that went up: ()."""
    down: Tensor
    """All that went down: ()."""
    log: Tensor
    """The length of all down-messages so far: ()."""
    have: Tensor
    """How much of that log each client has: (N,)."""

    @classmethod
    def empty(cls, num_clients: int, device: torch.device) -> Column:
        """The column before the first round."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        return cls(zeros(), zeros(), zeros(), zeros(num_clients))

    def add(self, sizes: Sizes, listeners: Tensor) -> Column:
        """The column after a round; `listeners` are the clients that take part in the next one."""
        log = self.log + sizes.down
        missed = log - self.have[listeners]
        return Column(
            up=self.up + sizes.up.sum(),
            down=self.down + torch.minimum(missed, sizes.snapshot).sum(),
            log=log,
            have=self.have.index_fill(0, listeners, 0).index_add(0, listeners, log.expand(len(listeners))),
        )


def whole(replica: State) -> Message:
    """A snapshot of the replica as it is sent to those who missed much."""
    return {name: Dense(vector) for name, vector in replica.items()}


@dataclass(frozen=True, eq=False)
class Ledger:
    """What was sent so far: a value, which a round turns into the next."""

    wire: Column
    """The bytes of our own frames, heads and checksums included."""
    paper: Column
    """By the paper's rule: 4 B for a dense entry, 8 B for a kept one."""

    @classmethod
    def empty(cls, num_clients: int, device: torch.device) -> Ledger:
        """The ledger before the first round."""
        return cls(Column.empty(num_clients, device), Column.empty(num_clients, device))

    def add(self, wire: Sizes, paper: Sizes, listeners: Tensor) -> Ledger:
        """The ledger after a round of these sizes; `listeners` are the clients that take part in the next one."""
        return Ledger(self.wire.add(wire, listeners), self.paper.add(paper, listeners))

    def add_round(self, up: Message, down: Message, replica: State, listeners: Tensor) -> Ledger:
        """The ledger after a round with these messages, which ended in this replica."""
        snapshot = whole(replica)
        wire = Sizes(frame_nbytes(up), frame_nbytes(down), frame_nbytes(snapshot))
        paper = Sizes(frame_paper_nbytes(up), frame_paper_nbytes(down), frame_paper_nbytes(snapshot))
        return self.add(wire, paper, listeners)

    def totals(self) -> dict[str, int]:
        """Bytes so far by count and direction."""
        return {name: int(count) for name, count in self.on_device().items()}

    def sent(self) -> int:
        """All bytes of our own format so far, read back."""
        return int(self.wire.up + self.wire.down)

    def on_device(self) -> dict[str, Tensor]:
        """The totals, not read back."""
        return {
            "wire_up_bytes": self.wire.up,
            "wire_down_bytes": self.wire.down,
            "paper_up_bytes": self.paper.up,
            "paper_down_bytes": self.paper.down,
        }

    def state(self) -> State:
        """The ledger as named tensors, for a snapshot."""
        columns = {"wire": self.wire, "paper": self.paper}
        return {f"{c}_{f.name}": getattr(column, f.name) for c, column in columns.items() for f in fields(column)}

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> Ledger:
        """The ledger from named tensors, as `state` gave them."""
        wire, paper = (
            Column(**{f.name: state[f"{name}_{f.name}"] for f in fields(Column)}) for name in ("wire", "paper")
        )
        return cls(wire, paper)
