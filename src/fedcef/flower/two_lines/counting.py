"""Bytes by round, direction and part, for any Flower app.

    counted()               a mod: each node adds up what it receives and sends
    CountedGrid(grid)       a grid that adds up what passes through it
    Counted(strategy)       a strategy that runs over such a grid (strategy.py)

What is counted is what an app hands to Flower and is handed by it: the data of arrays, the names and values of metrics
and configs.  Flower's own envelope is not in it, about 1 to 2 kB for each message.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from logging import INFO
from typing import Any

from flwr.app import Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

PARTS = ("arrays", "metrics", "configs")
"""What a message is made of."""
SHORTEST_S, LONGEST_S = 0.02, 1.0
"""Between two looks for replies."""

Handler = Callable[[Message, Context], Message]


def content_bytes(content: RecordDict) -> dict[str, int]:
    """The bytes of a message's content by part."""
    arrays = sum(
        len(name.encode()) + len(array.data)
        for record in content.array_records.values()
        for name, array in record.items()
    )
    metrics = sum(_entry(name, value) for r in content.metric_records.values() for name, value in r.items())
    configs = sum(_entry(name, value) for r in content.config_records.values() for name, value in r.items())
    return dict(zip(PARTS, (arrays, metrics, configs), strict=True))


def _entry(name: str, value: Any) -> int:
    return len(name.encode()) + sum(_size(one) for one in (value if isinstance(value, list) else [value]))


def _size(value: Any) -> int:
    if isinstance(value, bytes):
        return len(value)
    return len(value.encode()) if isinstance(value, str) else 1 if isinstance(value, bool) else 8


@dataclass
class RoundBytes:
    """What one round has sent: bytes by (direction, part), and messages by direction."""

    bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def total(self, direction: str) -> int:
        """All parts in one direction, "up" or "down"."""
        return sum(self.bytes[direction, part] for part in PARTS)

    def as_metrics(self, prefix: str = "bytes") -> MetricRecord:
        """As Flower's results hold numbers: bytes-up, bytes-down, bytes-up-arrays and so on."""
        sums = {f"{prefix}-{direction}": self.total(direction) for direction in ("up", "down")}
        parts = {f"{prefix}-{direction}-{part}": n for (direction, part), n in sorted(self.bytes.items()) if n}
        return MetricRecord({**sums, **parts})


class Tally:
    """Bytes by round.  A batch of train messages begins a round; what comes before the first is in round 0."""

    def __init__(self) -> None:
        self.rounds: dict[int, RoundBytes] = {0: RoundBytes()}
        self._began = time.perf_counter()
        self.on_round: Callable[[int], None] = lambda number: None
        """Told the number of every round that is over."""

    @property
    def round(self) -> int:
        """The round that is going on."""
        return max(self.rounds)

    def begin_round(self) -> None:
        """From now on the next round is counted."""
        now, over = time.perf_counter(), self.round
        self.rounds[over].seconds, self._began = now - self._began, now
        self.rounds[over + 1] = RoundBytes()
        self.on_round(over)

    def close(self) -> None:
        """The last round is over."""
        self.rounds[self.round].seconds = time.perf_counter() - self._began

    def add(self, direction: str, content: RecordDict) -> None:
        """One message."""
        current = self.rounds[self.round]
        current.messages[direction] += 1
        for part, size in content_bytes(content).items():
            current.bytes[direction, part] += size

    def total(self, direction: str, until: int | None = None) -> int:
        """All rounds up to one, or all there are."""
        return sum(r.total(direction) for number, r in self.rounds.items() if until is None or number <= until)


class PassingGrid(Grid):
    """A grid that hands everything to another; those that look at what passes derive from it."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def set_run(self, run: Any) -> None:
        """As the grid below."""
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        """As the grid below."""
        return self.grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """As the grid below."""
        return self.grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        """As the grid below."""
        return self.grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """As the grid below."""
        return self.grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the grid below."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As the grid below."""
        return self.grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push, and pull until all replies are there or the time is over; Flower's own, but for how often it looks."""
        waiting, began = {one for one in self.push_messages(messages) if one}, time.monotonic()
        replies: list[Message] = []
        while waiting:
            found = list(self.pull_messages(sorted(waiting)))
            replies += found
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            passed = time.monotonic() - began
            if timeout is not None and passed >= timeout:
                break
            if waiting:
                time.sleep(min(max(passed / 20, SHORTEST_S), LONGEST_S))
        return replies


class CountedGrid(PassingGrid):
    """A grid that counts what passes."""

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid)
        self.tally = Tally()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send, and count; train messages begin a round."""
        batch = list(messages)
        if any(is_train(message) for message in batch):
            self.tally.begin_round()
        return self.push_again(batch)

    def push_again(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send what belongs to the round that is going on."""
        batch = list(messages)
        for message in batch:
            self.tally.add("down", message.content)
        return self.grid.push_messages(batch)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Receive, and count."""
        replies = list(self.grid.pull_messages(message_ids))
        for reply in replies:
            if reply.has_content():
                self.tally.add("up", reply.content)
        return replies


def is_train(message: Message) -> bool:
    """Whether a message asks for training."""
    return message.metadata.message_type.partition(".")[0] == MessageType.TRAIN


def counted(tell: Callable[[str], None] | None = None) -> Callable[[Message, Context, Handler], Message]:
    """A mod that adds up what this node receives and sends, and leaves it as it is.

    The sums are in the app's state, `context.state["fedcef.counted"]`, as long as the run lasts.  A line for each
    message goes to Flower's log.

    Args:
        tell: takes the line instead.
    """

    def mod(message: Message, context: Context, call_next: Handler) -> Message:
        received = content_bytes(message.content)
        kind = message.metadata.message_type
        reply = call_next(message, context)
        sent = content_bytes(reply.content) if reply.has_content() else {}
        before = context.state.metric_records.get("fedcef.counted", MetricRecord())
        sums: dict[str, Any] = dict(before)
        for direction, sizes in (("down", received), ("up", sent)):
            for part, size in sizes.items():
                name = f"bytes-{direction}-{part}"
                sums[name] = sums.get(name, 0) + size
        context.state["fedcef.counted"] = MetricRecord(sums)
        line = f"{kind}: {sum(received.values()):,} bytes received, {sum(sent.values()):,} sent"
        tell(line) if tell else log(INFO, line)
        return reply

    return mod
