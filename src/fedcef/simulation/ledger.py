"""The ledger of what is sent, in two columns: our own wire format's bytes and the paper's count.

Uplink: every participant's frame.  Downlink: the participants of the *next* round are brought up to date, each
by the frames that it missed or by a snapshot of the replica, whichever is smaller; with all clients in every
round that is one frame for each client and round, as the paper counts.  The first hand-out of the start point is
not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.wire import Dense, frame_nbytes, frame_paper_nbytes


@dataclass
class Column:
    """Bytes so far by one way of counting; tensors, so that counting does not wait for the device."""

    up: Tensor  # ()
    down: Tensor  # ()
    log: Tensor  # () length of all down-messages so far
    have: Tensor  # (N,) how much of that log each client has

    @classmethod
    def empty(cls, num_clients: int, device: torch.device) -> Column:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        return cls(zeros(), zeros(), zeros(), zeros(num_clients))

    def add(self, up: Tensor, down: Tensor, snapshot: Tensor, listeners: Tensor) -> None:
        self.up = self.up + up.sum()
        self.log = self.log + down
        missed = self.log - self.have[listeners]
        self.down = self.down + torch.minimum(missed, snapshot).sum()
        self.have = self.have.index_fill(0, listeners, 0).index_add(0, listeners, self.log.expand(len(listeners)))


def whole(replica: State) -> Message:
    """A snapshot of the replica as it is sent to those who missed much."""
    return {name: Dense(vector) for name, vector in replica.items()}


class Ledger:
    def __init__(self, num_clients: int, device: torch.device) -> None:
        self.wire = Column.empty(num_clients, device)
        self.paper = Column.empty(num_clients, device)

    def add_round(self, up: Message, down: Message, replica: State, listeners: Tensor) -> None:
        """Count one round; `listeners` are the clients that take part in the next one."""
        snapshot = whole(replica)
        self.wire.add(frame_nbytes(up), frame_nbytes(down), frame_nbytes(snapshot), listeners)
        self.paper.add(frame_paper_nbytes(up), frame_paper_nbytes(down), frame_paper_nbytes(snapshot), listeners)

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

    def restore(self, state: State) -> None:
        for name, column in (("wire", self.wire), ("paper", self.paper)):
            for f in fields(column):
                setattr(column, f.name, state[f"{name}_{f.name}"])
