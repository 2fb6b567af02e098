"""What a server knows of its nodes, and what it writes to and reads from each of them.

A node is known by the client that its disk belongs to, which its answers name, and by the version of the replica that
it has confirmed.  Of every client the server keeps eight bytes: the memory that counts, which follows from all messages
that have arrived.  Every order names it, and so decides what becomes of a message that was lost, doubled or late.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from fedcef.compressors import Compressor
from fedcef.flower.two_lines.channel import Channel, Model, numbers
from fedcef.flower.two_lines.layout import Arrays
from fedcef.flower.two_lines.messages import (
    APART,
    BLOB,
    DONE,
    FROM_NOTHING,
    LONG,
    NOTHING,
    RESULT,
    SHORT,
    Answer,
    Order,
    as_array,
    digest_of,
)
from fedcef.flower.two_lines.notation import is_exact
from fedcef.wire import WireError

MOST_MEMORIES = 4096
"""Of so many clients, at most, a node that nobody knows is told which memory counts: it may be one of them."""


@dataclass
class Known:
    """What the server knows of a node: its client, and the version of its replica."""

    client: bytes
    version: int


@dataclass
class Ordered:
    """What a node was sent in the place of one model."""

    channel: Channel
    order: bytes
    version: int
    base: Arrays  # the strategy's model then
    given: NDArray[Any] | None  # the replica then, where results come as they are and must be moved


class Server:
    """The models of a run, and the nodes that hold them."""

    def __init__(self, up: Compressor, down: Compressor) -> None:
        self.up, self.down = up, down
        self.channels: dict[str, Channel] = {}
        self.clients: dict[bytes, dict[bytes, bytes]] = {}  # by run and client: the memory that counts
        self.known: dict[tuple[bytes, int], Known] = {}
        self._newest: dict[tuple[bytes, int], bytes] = {}

    def advance(self, contents: list[RecordDict]) -> tuple[dict[str, Model], bool]:
        """Bring every channel to the first model of its name in a batch, which is the one for everyone.

        Returns these models, and whether anything was new.
        """
        shared: dict[str, Model] = {}
        for content in contents:
            for name, record in content.array_records.items():
                if name not in shared and is_model(record):
                    shared[name] = dict(record)
        new = False
        for name, model in shared.items():
            channel = self.channels.get(name)
            if channel is not None and channel.is_current(model):
                continue
            new = True
            if channel is None or not channel.follows(model):
                self.channels[name] = Channel(model, self.up, self.down)
            else:
                channel.advance(model)
        return shared, new

    def order(
        self, channel: Channel, node: int, present: set[int], own: Model | None = None, from_nothing: bool = False
    ) -> tuple[ArrayRecord, Ordered]:
        """What to send a node in the place of the channel's model, or of one that is its own.

        Args:
            channel: the model.
            node: to whom.
            present: the nodes that are spoken to at the same time.
            own: a model for this node alone, which is sent as it is.
            from_nothing: whether the node has said that it lacks what it was known to have.
        """
        if own is not None and not channel.follows(own):
            raise WireError("One batch of messages has models of different shapes under one name; send them apart.")
        whole = channel.exact or own is not None
        known, memories = self.known.get((channel.run, node)), self.clients.setdefault(channel.run, {})
        begun = known is not None and not from_nothing
        version = known.version if known is not None and begun else None
        since, frames = (channel.version, as_array(b"")) if whole else channel.since(version)
        text: dict[str, Any] = {} if begun else channel.text()
        text |= {"whole": True} if whole else {"types": types} if (types := channel.types()) else {}
        apart = len(frames.data) > LONG
        order = Order(
            run=channel.run,
            order=secrets.token_bytes(SHORT),
            since=since if begun else FROM_NOTHING,
            version=channel.version,
            digest=channel.digest,
            known=known is not None,
            memory=memories.get(known.client, NOTHING) if known else NOTHING,
            text=text | ({"apart": digest_of(frames.data)} if apart else {}),
            memories={} if known else self._of_others(channel.run, present),
            kept=b"" if whole else channel.kept,
            frames=b"" if apart else frames.data,
        )
        self._newest[channel.run, node] = order.order
        model = {} if not whole else channel.model if own is None else own
        record = ArrayRecord({**model, BLOB: as_array(order.encode()), **({APART: frames} if apart else {})})
        given = channel.replica if is_exact(self.up) and not whole else None
        base = channel.arrays if own is None else numbers(own)
        return record, Ordered(channel, order.order, channel.version, base, given)

    def again(self, ordered: Ordered, node: int) -> tuple[ArrayRecord, Ordered]:
        """The same for a node that lacks what it was known to have."""
        channel = ordered.channel
        own = None if ordered.base is channel.arrays else {name: Array(a) for name, a in ordered.base.items()}
        return self.order(channel, node, {node}, own, from_nothing=True)

    def take(self, content: RecordDict, place: str, blob: bytes, ordered: Ordered, node: int) -> Answer:
        """Put a node's model in the place of its answer; nothing is noted before all of the reply is usable."""
        channel = ordered.channel
        answer = Answer.decode(blob, channel.limit())
        if answer.run != channel.run or answer.order != ordered.order:
            raise WireError("It answers another order.")
        if not self.is_newest(ordered, node):
            raise WireError("It is late: the node has been sent something since.")
        memories = self.clients.setdefault(channel.run, {})
        if answer.kind == RESULT:
            if answer.memory not in (NOTHING, memories.get(answer.client, NOTHING)):
                raise WireError("It builds on a message that did not arrive; do two nodes share a state folder?")
            content[place] = ArrayRecord(channel.rebuilt(answer, ordered.base, ordered.version))
        elif answer.kind == DONE:
            _as_it_came(content, place, ordered)
        return answer

    def is_newest(self, ordered: Ordered, node: int) -> bool:
        """Whether the node has been sent nothing since in the place of the same model."""
        return self._newest.get((ordered.channel.run, node)) == ordered.order

    def note(self, answer: Answer, ordered: Ordered, node: int) -> None:
        """An answer counts from now on: what its client has sent, and what its node has."""
        run = ordered.channel.run
        if answer.kind == RESULT:
            self.clients[run].pop(answer.client, None)  # to the end of the list
            self.clients[run][answer.client] = answer.memory_after()
        self.known[run, node] = Known(answer.client, ordered.version)

    def _of_others(self, run: bytes, present: set[int]) -> dict[bytes, bytes]:
        """The memories of clients that are not spoken to now."""
        here = {known.client for (of, node), known in self.known.items() if of == run and node in present}
        others = [(client, memory) for client, memory in self.clients[run].items() if client not in here]
        return dict(others[-MOST_MEMORIES:])


def is_model(record: Mapping[str, Array]) -> bool:
    """Whether a record holds arrays that NumPy can read, and none of ours."""
    return bool(record) and BLOB not in record and all(array.stype == "numpy.ndarray" for array in record.values())


def _as_it_came(content: RecordDict, place: str, ordered: Ordered) -> None:
    """A reply whose arrays, if it has any, were not compressed."""
    record = content.array_records[place]
    del record[BLOB]
    if not record:
        del content[place]
    elif ordered.given is not None and is_model(record):
        content[place] = ArrayRecord(ordered.channel.moved(dict(record), ordered.base, ordered.given))
