"""A grid that compresses what passes through it; the server's line for whoever sends messages by hand.

    grid = fedcef.flower.CompressedGrid(grid, up="topk(0.01, sign)", down="topk(0.02, sign)")

Models go down as orders (messages.py), and the models that come up are rebuilt, so that whoever uses the grid sees
messages as without it.  A reply that cannot be used becomes Flower's error reply, which strategies leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace
from logging import WARNING
from typing import Any

from flwr.app import Error, Message, Metadata, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedcef.compressors import Compressor
from fedcef.core.errors import FedcefError
from fedcef.flower.two_lines.channel import same_model
from fedcef.flower.two_lines.counting import CountedGrid, PassingGrid, Tally
from fedcef.flower.two_lines.messages import NEED, Answer, blob_in
from fedcef.flower.two_lines.notation import HALF, compressor, first_compressor
from fedcef.flower.two_lines.server import Ordered, Server, is_model
from fedcef.wire import WireError

UNUSABLE = 0
"""Flower's code for an error of no kind that it knows."""
MOST_TIMES = 3
"""A message is sent so often: to ask who it is, to bring what it says it lacks, and to bring everything."""


@dataclass
class Sent:
    """A message that waits for its reply."""

    asked: str  # the id under which the caller asks for it
    metadata: Metadata
    content: RecordDict  # as the caller made it
    orders: dict[str, Ordered]
    times: int = 1

    def outdated(self) -> None:
        """The node has been sent something since: a reply is late, and the models are not needed to say so."""
        self.content = RecordDict()
        self.orders = {name: replace(one, base={}, given=None) for name, one in self.orders.items()}


class CompressedGrid(PassingGrid):
    """A grid between a server and its nodes, whose apps have the mod `compressed()`.

    Args:
        grid: Flower's.
        up: the compressor of what nodes have changed, such as "topk(0.01, sign)"; "identity" for none.
        down: the compressor of what the model has changed since nodes last saw it; "identity" for none.
        first: the compressor of the first model; "half" for half precision.  It has no effect if `down` is "identity".
    """

    def __init__(
        self,
        grid: Grid,
        up: str | Compressor = "topk(0.01, sign)",
        down: str | Compressor = "topk(0.02, sign)",
        first: str | Compressor = HALF,
    ) -> None:
        self.counted = CountedGrid(grid)
        super().__init__(self.counted)
        self.server = Server(compressor(up, "up"), compressor(down, "down"), first_compressor(first))
        self.plain = Tally()
        """What would be sent without compression."""
        self.left_out: list[str] = []
        """Sentences on replies that could not be used."""
        self.before_sending: Callable[[], None] = lambda: None
        """Called when there is a new model, before a node hears of it."""
        self._sent: dict[str, Sent] = {}
        self._now: dict[str, str] = {}  # where a message was sent again: its id by the one that the caller knows

    @property
    def tally(self) -> Tally:
        """What is really sent."""
        return self.counted.tally

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send, with orders in the place of models.  All nodes of a batch should get the same model."""
        batch = [copy(message) for message in messages]  # the caller's stay as they are
        contents = [message.content for message in batch]
        shared, new = self.server.advance(contents)
        if new:
            self.before_sending()
        present = {message.metadata.dst_node_id for message in batch}
        asked = self.server.doubtful(present, self.get_node_ids)
        orders = [self._pack(message, shared, asked) for message in batch]
        for sent in self._sent.values():
            node = sent.metadata.dst_node_id
            if node in present and not any(self.server.is_newest(one, node) for one in sent.orders.values()):
                sent.outdated()
        before = self.tally.round
        ids = list(self.counted.push_messages(batch))
        if self.tally.round > before:
            self.plain.begin_round()
        for message, content, ordered, identifier in zip(batch, contents, orders, ids, strict=True):
            self.plain.add("down", content)
            if identifier:
                self._sent[identifier] = Sent(identifier, message.metadata, content, ordered)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Receive, with models in the place of answers.  Of two replies to a message only the first is there."""
        wanted = [self._now.get(asked, asked) for asked in message_ids]
        replies = []
        for reply in self.counted.pull_messages(wanted):
            sent = self._sent.pop(reply.metadata.reply_to_message_id, None)
            if sent is not None and self._read(reply, sent):
                self._now.pop(sent.asked, None)
                reply.metadata.__dict__["_reply_to_message_id"] = sent.asked
                replies.append(reply)
        return replies

    def _pack(self, message: Message, shared: dict[str, Any], asked: set[bytes]) -> dict[str, Ordered]:
        """Put orders in the place of a message's models."""
        records, orders = dict(message.content.items()), {}
        for name, record in message.content.array_records.items():
            if is_model(record):
                own = None if same_model(record, shared[name]) else dict(record)
                channel, node = self.server.channels[name], message.metadata.dst_node_id
                records[name], orders[name] = self.server.order(channel, node, own=own, ask=channel.run in asked)
        message.content = RecordDict(records)
        return orders

    def _read(self, reply: Message, sent: Sent) -> bool:
        """Make a reply what the caller is to see; False if the node was asked again, with more."""
        if reply.has_error():
            return True
        node = sent.metadata.dst_node_id
        try:
            records = reply.content.array_records
            blobs = {place: blob for place, r in records.items() if (blob := blob_in(r)) is not None}
            answers: dict[str, tuple[Answer, Ordered]] = {}
            for name, ordered in sent.orders.items():
                place = name if name in blobs else next(iter(blobs), "")
                if not place:
                    raise WireError("It is not in our format; is compressed() among its app's mods?")
                answers[name] = self.server.take(reply.content, place, blobs.pop(place), ordered, node), ordered
            if any(answer.kind == NEED for answer, _ in answers.values()):
                self._send_again(sent, {name: answer for name, (answer, _) in answers.items()})
                return False
            for answer, ordered in answers.values():
                self.server.note(answer, ordered, node)
        except FedcefError as error:
            sentence = f"The reply of node {node} is left out: {error}"
            self.left_out.append(sentence)
            log(WARNING, sentence)
            reply.__dict__["_content"], reply.__dict__["_error"] = None, Error(UNUSABLE, str(error))
            return True
        self.plain.add("up", reply.content)
        return True

    def _send_again(self, sent: Sent, needs: dict[str, Answer]) -> None:
        """The same message with all that the node lacks, by what it says it has."""
        if sent.times == MOST_TIMES:
            raise WireError("It needs more again than it was sent; look at its state folder.")
        old, records, orders = sent.metadata, dict(sent.content.items()), {}
        for name, ordered in sent.orders.items():
            records[name], orders[name] = self.server.again(ordered, old.dst_node_id, needs[name])
        message = Message(RecordDict(records), old.dst_node_id, old.message_type, ttl=old.ttl, group_id=old.group_id)
        identifier = next(iter(self.counted.push_again([message])), "")
        if not identifier:
            raise WireError("It needs the whole model, and Flower did not take that message.")
        self._sent[identifier] = Sent(sent.asked, message.metadata, sent.content, orders, sent.times + 1)
        self._now[sent.asked] = identifier
