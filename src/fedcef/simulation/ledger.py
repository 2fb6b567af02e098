"""The ledger of what is sent, in two columns: our own wire format's bytes and the paper's count.

Uplink: every participant's frame.  Downlink: the participants of the *next* round are brought up to date.  Who missed
the last frame alone gets it, or the replica with all its entries if that is smaller; with all clients in every round
that is one frame for each client and round, as the paper counts.  Who was away for longer gets the frames that it
missed or a snapshot of the replica without its zeros, whichever is smaller.  What that takes beyond a fresh frame is
counted once more by itself, as catch-up.  Where a method's messages stand alone, everyone gets the last one.  The first
hand-out of the start point is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.simulation.marks import Marks
from fedcef.simulation.snapshots import snapshot, whole
from fedcef.wire import Contexts, frame_nbytes, frame_paper_nbytes
from fedcef.wire.frame import NOTHING

Count = Callable[[Message], Tensor]
"""A way of counting: the bytes of a message."""


class Sizes(NamedTuple):
    """The bytes of one round by one way of counting."""

    up: Tensor
    """Of each participant's up-message: (S,)."""
    down: Tensor
    """Of the down-message: ()."""
    whole: Tensor
    """Of the replica after the round with all its entries: ()."""
    snapshot: Tensor
    """Of that replica without its zeros: ()."""
    alone: bool = False
    """Whether the down-message stands alone, and so is what there is to send for the replica."""

    @property
    def fresh(self) -> Tensor:
        """What brings a client up to date that missed this round alone: ()."""
        return torch.minimum(self.down, self.whole)

    @classmethod
    def of(
        cls, count: Count, up: Tensor, down: Tensor, replica: State, anyone_away: bool, alone: bool = False
    ) -> Sizes:
        """The sizes of a round that ended in this replica; a snapshot is measured only if someone may need one."""
        if alone:
            return cls(up, down, down, down, alone)
        dense = count(whole(replica))
        return cls(up, down, dense, count(snapshot(replica)) if anyone_away else dense)


@dataclass(frozen=True, eq=False)
class Column:
    """Bytes so far by one way of counting; tensors, so that counting does not wait for the device."""

    up: Tensor
    """All that went up: ()."""
    down: Tensor
    """All that went down: ()."""
    log: Tensor
    """The length of all down-messages so far: ()."""
    marks: Marks
    """How much of that log each client has."""
    catch_up: Tensor | None = None
    """Of what went down, the part that clients got because they were away, beyond a fresh frame each: (); None before
    the first round that counts it, be it the run's first or the first after a snapshot of an earlier version."""
    last: Tensor | None = None
    """The length of the last down-message, where those stand alone and nobody is sent more: ()."""

    @classmethod
    def empty(cls, num_clients: int, device: torch.device) -> Column:
        """The column before the first round."""

        def zeros() -> Tensor:
            return torch.zeros((), dtype=torch.int64, device=device)

        return cls(zeros(), zeros(), zeros(), Marks.start(num_clients, device))

    @property
    def have(self) -> Tensor:
        """How much of the log each client has, all of them: (N,)."""
        return self.marks.everyone()

    def add(self, sizes: Sizes, listeners: Tensor, told: Tensor | None = None) -> Column:
        """The column after a round; `listeners` take part in the next one, and `told` are sent its end in any case."""
        log, marks, down = self.log + sizes.down, self.marks, self.down
        if told is not None:  # who took part has the log up to this round
            marks = marks.moved(told, log)
            down = down + len(told) * sizes.fresh
        sent = self._sent(sizes, marks.of(listeners))
        beyond = (sent - sizes.down).clamp(min=0).sum()
        return Column(
            up=self.up + sizes.up.sum(),
            down=down + sent.sum(),
            log=log,
            marks=marks.moved(listeners, log),
            catch_up=beyond if self.catch_up is None else self.catch_up + beyond,
            last=sizes.down if sizes.alone else self.last,
        )

    def due(self, sizes: Sizes, listeners: Tensor, told: Tensor | None = None) -> Tensor:
        """What each of the listeners gets before it can begin with the next round, the round's end included: (S,)."""
        sent = self._sent(sizes, self.marks.of(listeners))
        return sent if told is None else torch.where(torch.isin(listeners, told), sizes.fresh, sent)

    def copied(self) -> Column:
        """The same column in memory of its own."""
        others = (None if one is None else one.clone() for one in (self.catch_up, self.last))
        return Column(self.up.clone(), self.down.clone(), self.log.clone(), self.marks.copied(), *others)

    def tensors(self) -> State:
        """The column as named tensors."""
        others = {name: one for name, one in (("catch_up", self.catch_up), ("last", self.last)) if one is not None}
        return {"up": self.up, "down": self.down, "log": self.log, **self.marks.tensors(), **others}

    def with_tensors(self, tensors: State) -> Column:
        """The column that `tensors` gave these for; raises ValueError if they are of another problem."""
        totals = {name: tensors.get(name) for name in ("up", "down", "log")}
        for name, total in totals.items():
            if total is None or total.shape != () or total.dtype != torch.int64:
                raise ValueError(f"ledger/{name} differs")
        others = {name: tensors.get(name) for name in ("catch_up", "last")}
        marks = {name: tensor for name, tensor in tensors.items() if name not in totals | others}
        return Column(**totals, marks=self.marks.with_tensors(marks), **others)  # type: ignore[arg-type]

    def _sent(self, sizes: Sizes, have: Tensor) -> Tensor:
        """What brings clients that have so much of the log up to date after a round."""
        if self.last is not None and not sizes.alone:  # handed out between rounds
            return torch.where(have < self.log, self.last, 0)
        missing = self.log + sizes.down - have
        return torch.minimum(missing, torch.where(have < self.log, sizes.snapshot, sizes.whole))


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

    def add(self, wire: Sizes, paper: Sizes, listeners: Tensor, told: Tensor | None = None) -> Ledger:
        """The ledger after a round of these sizes; `listeners` and `told` as for a column."""
        return Ledger(self.wire.add(wire, listeners, told), self.paper.add(paper, listeners, told))

    def sizes(
        self,
        up: Message,
        down: Message,
        replica: State,
        listeners: Tensor,
        contexts: Contexts = NOTHING,
        alone: bool = False,
    ) -> tuple[Sizes, Sizes]:
        """A round with these messages, coded with these contexts, which ended in this replica, by both counts."""
        some = len(listeners) < self.wire.marks.num_clients
        up_and_down = frame_nbytes(up, contexts), frame_nbytes(down, contexts)
        wire = Sizes.of(frame_nbytes, *up_and_down, replica, some, alone)
        up_and_down = frame_paper_nbytes(up), frame_paper_nbytes(down)
        return wire, Sizes.of(frame_paper_nbytes, *up_and_down, replica, some, alone)

    def anyone_away(self, listeners: Tensor) -> bool:
        """Whether one of these clients missed more than the round to come, read back."""
        return any(bool((column.marks.of(listeners) < column.log).any()) for column in (self.wire, self.paper))

    def totals(self) -> dict[str, int]:
        """Bytes so far by count and direction; those of catching up are among those that went down."""
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
            "wire_catch_up_bytes": _or_zero(self.wire),
            "paper_catch_up_bytes": _or_zero(self.paper),
        }

    def copied(self) -> Ledger:
        """The same ledger in memory of its own."""
        return Ledger(self.wire.copied(), self.paper.copied())

    def state(self) -> State:
        """The ledger as named tensors, for a snapshot."""
        return {f"{name}_{key}": t for name in ("wire", "paper") for key, t in getattr(self, name).tensors().items()}

    def with_state(self, state: Mapping[str, Tensor]) -> Ledger:
        """The ledger that `state` gave these tensors for; raises ValueError if they are of another problem."""
        wire, paper = (
            column.with_tensors({key.removeprefix(name): t for key, t in state.items() if key.startswith(name)})
            for name, column in (("wire_", self.wire), ("paper_", self.paper))
        )
        return Ledger(wire, paper)


def _or_zero(column: Column) -> Tensor:
    return torch.zeros_like(column.up) if column.catch_up is None else column.catch_up
