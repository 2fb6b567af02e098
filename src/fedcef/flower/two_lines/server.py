"""What a server knows of its nodes, and what it writes to and reads from each of them.

A node is known by the client that its disk belongs to, which its answers name, and by the version of the replica that
it has confirmed.  Of every client the server keeps eight bytes: the memory that counts, which follows from all messages
that have arrived.  Every order names it, and so decides what becomes of a message that was lost, doubled or late.

A node that nobody knows is new, or an old one that was started again under another id.  Where the latter is likely it
is asked first; else it gets the whole model, and says so if it is an old one.  Clients' names stay between each of them
and the server.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import WARNING
from typing import Any

from flwr.app import Array, ArrayRecord, RecordDict
from flwr.supercore import log
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


@dataclass
class Known:
    """What the server knows of a node: its client, the version of its replica, and which order it answered when."""

    client: bytes
    version: int
    order: bytes = b""
    batch: int = -1


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

    def __init__(self, up: Compressor, down: Compressor, first: Compressor | None = None) -> None:
        self.up, self.down, self.first = up, down, first
        self.channels: dict[str, Channel] = {}
        self.clients: dict[bytes, dict[bytes, bytes]] = {}  # by run and client: the memory that counts
        self.known: dict[tuple[bytes, int], Known] = {}
        self._newest: dict[tuple[bytes, int], bytes] = {}
        self._batch = 0
        self._told: set[str] = set()

    def advance(self, contents: list[RecordDict]) -> tuple[dict[str, Model], bool]:
        """Bring every channel to the first model of its name in a batch, which is the one for everyone.

        Returns these models, and whether anything was new.
        """
        self._batch += 1
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
                if channel is not None:
                    self._forget(channel.run)
                self.channels[name] = Channel(model, self.up, self.down, self.first)
            else:
                channel.advance(model)
        return shared, new

    def doubtful(self, present: set[int], connected: Callable[[], Iterable[int]]) -> set[bytes]:
        """The runs in which a node that nobody knows may well be an old one: it is asked before it is sent the model.

        So it is where a known node is not connected or owes an answer, or where most of those connected are known.
        """
        runs = {channel.run for channel in self.channels.values()}
        strange = {run for run in runs if any((run, node) not in self.known for node in present)}
        here = set(connected()) | present if strange and self.known else set()
        found = set()
        for run in strange:
            known = {node: one for (of, node), one in self.known.items() if of == run}
            owing = [node for node, one in known.items() if self._newest.get((run, node), one.order) != one.order]
            if owing or not here >= set(known) or len(here) < 2 * len(known):
                found.add(run)
        return found

    def order(
        self, channel: Channel, node: int, *, own: Model | None = None, ask: bool = False, need: Answer | None = None
    ) -> tuple[ArrayRecord, Ordered]:
        """What to send a node in the place of the channel's model, or of one that is its own.

        Args:
            channel: the model.
            node: to whom.
            own: a model for this node alone, which is sent as it is.
            ask: whether to ask who it is before anything is sent, if it is not known.
            need: its answer, if it has said that it lacks what an order took it to have.
        """
        if own is not None and not channel.follows(own):
            raise WireError("One batch of messages has models of different shapes under one name; send them apart.")
        known, memories = self.known.get((channel.run, node)), self.clients.setdefault(channel.run, {})
        begun, ask = known is not None and need is None, ask and known is None and need is None
        whole = not ask and (channel.exact or own is not None)
        version = known.version if known is not None and begun else _told_version(need, channel)
        since, frames = (channel.version, as_array(b"")) if whole or ask else channel.since(version)
        text: dict[str, Any] = {} if begun else {"who": True} if ask else channel.text()
        text |= {"whole": True} if whole else {"types": types} if not ask and (types := channel.types()) else {}
        apart = len(frames.data) > LONG
        client = need.client if need is not None else known.client if known is not None else b""
        order = Order(
            run=channel.run,
            order=secrets.token_bytes(SHORT),
            since=since if version is not None or ask else FROM_NOTHING,
            version=channel.version,
            digest=channel.digest,
            known=bool(client) or not memories,  # where nothing counts yet, nothing of this client does
            memory=memories.get(client, NOTHING),
            text=text | ({"apart": digest_of(frames.data)} if apart else {}),
            kept=b"" if whole or ask else channel.kept,
            frames=b"" if apart else frames.data,
        )
        self._newest[channel.run, node] = order.order
        model = {} if not whole else channel.model if own is None else own
        record = ArrayRecord({**model, BLOB: as_array(order.encode()), **({APART: frames} if apart else {})})
        given = channel.replica if is_exact(self.up) and not whole else None
        base = channel.arrays if own is None else numbers(own)
        return record, Ordered(channel, order.order, channel.version, base, given)

    def again(self, ordered: Ordered, node: int, need: Answer) -> tuple[ArrayRecord, Ordered]:
        """The same for a node that lacks what it was taken to have."""
        channel = ordered.channel
        own = None if ordered.base is channel.arrays else {name: Array(a) for name, a in ordered.base.items()}
        return self.order(channel, node, own=own, need=need)

    def take(self, content: RecordDict, place: str, blob: bytes, ordered: Ordered, node: int) -> Answer:
        """Put a node's model in the place of its answer; nothing is noted before all of the reply is usable."""
        channel = ordered.channel
        answer = Answer.decode(blob, channel.limit())
        if answer.run != channel.run or answer.order != ordered.order:
            raise WireError("It answers another order.")
        if not self.is_newest(ordered, node):
            raise WireError("It is late: the node has been sent something since.")
        if any(one.batch == self._batch for one in self._others(answer, channel.run, node)):
            raise WireError("Another node has just answered for the same client; do two nodes share a state folder?")
        memories = self.clients.setdefault(channel.run, {})
        if answer.kind == RESULT:
            if answer.memory not in (NOTHING, memories.get(answer.client, NOTHING)):
                raise WireError("It builds on a message that did not arrive; do two nodes share a state folder?")
            content[place] = ArrayRecord(channel.rebuilt(answer, ordered.base, ordered.version))
        elif answer.kind == DONE:
            self._as_it_came(content, place, ordered, node)
        return answer

    def is_newest(self, ordered: Ordered, node: int) -> bool:
        """Whether the node has been sent nothing since in the place of the same model."""
        return self._newest.get((ordered.channel.run, node)) == ordered.order

    def note(self, answer: Answer, ordered: Ordered, node: int) -> None:
        """An answer counts from now on: what its client has sent, and what its node has."""
        run = ordered.channel.run
        if answer.kind == RESULT:
            self.clients[run][answer.client] = answer.memory_after()
        for other in [key for key, one in self.known.items() if key[0] == run and one.client == answer.client]:
            del self.known[other]  # a client has one node: the one that spoke last
        self.known[run, node] = Known(answer.client, ordered.version, ordered.order, self._batch)

    def _others(self, answer: Answer, run: bytes, node: int) -> list[Known]:
        """What is known of other nodes that have spoken for the same client."""
        same = [key for key, one in self.known.items() if one.client == answer.client and key[0] == run]
        return [self.known[key] for key in same if key[1] != node]

    def _forget(self, run: bytes) -> None:
        """A model that has another shape now: nobody will ask for the old one."""
        self.clients.pop(run, None)
        for entries in (self.known, self._newest):
            for key in [key for key in entries if key[0] == run]:
                del entries[key]

    def _as_it_came(self, content: RecordDict, place: str, ordered: Ordered, node: int) -> None:
        """A reply whose arrays, if it has any, were not compressed."""
        record = content.array_records[place]
        del record[BLOB]
        if not record:
            del content[place]
        elif ordered.given is not None and is_model(record):
            content[place] = ArrayRecord(ordered.channel.moved(dict(record), ordered.base, ordered.given))
        elif not is_exact(self.up) and place not in self._told:
            self._told.add(place)
            log(
                WARNING,
                f"Node {node} returned other arrays in {place} than it was sent, by name, order, type or shape; they "
                "come as they are, uncompressed.",
            )


def _told_version(need: Answer | None, channel: Channel) -> int | None:
    """The version that a node says it has, if it can be one."""
    told = None if need is None else (need.text or {}).get("version")
    return told if type(told) is int and 0 <= told <= channel.version else None


def is_model(record: Mapping[str, Array]) -> bool:
    """Whether a record holds arrays that NumPy can read, and none of ours."""
    return bool(record) and BLOB not in record and all(array.stype == "numpy.ndarray" for array in record.values())
