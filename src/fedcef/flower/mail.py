"""Messages over Flower's grid that wait for their replies, each with what it was about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from flwr.app import Message, RecordDict

from fedcef.deployment.messages import on_one_line


class NodeInfo(Protocol):
    """What is used of what Flower knows of a node."""

    @property
    def node_id(self) -> int:
        """Its number, which changes when a node without a key is started again."""

    @property
    def public_key(self) -> bytes:
        """Its key, where it has one."""


class Grid(Protocol):
    """What is used of Flower's grid."""

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Those who are there."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send; the ids of the messages, each empty if it was not taken."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these that have come."""


@dataclass(frozen=True)
class Sent:
    """What was sent, to whom."""

    kind: str
    node: int
    round: int = -1
    session: bytes = b""  # under whose masks the reply is


@dataclass(frozen=True)
class Returned:
    """A reply, or why there is none."""

    sent: Sent
    message: Message | None
    why: str = ""


class Mail:
    """What was sent and not answered yet."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._waiting: dict[str, Sent] = {}
        self._lost: list[Returned] = []

    def send(self, sent: Sent, content: RecordDict, ttl: float) -> None:
        """Send one message.  Flower drops it when it is older than `ttl` seconds."""
        group = str(sent.round) if sent.round >= 0 else ""
        message = Message(content, sent.node, sent.kind, ttl=ttl, group_id=group)
        ids = list(self._grid.push_messages([message]))
        if ids and ids[0]:
            self._waiting[ids[0]] = sent
        else:
            self._lost.append(Returned(sent, None, "Flower did not take the message."))

    def returned(self) -> list[Returned]:
        """What has come since the last time."""
        back, self._lost = self._lost, []
        for message in self._grid.pull_messages(list(self._waiting)) if self._waiting else ():
            sent = self._waiting.pop(message.metadata.reply_to_message_id, None)
            if sent is None:
                continue
            if message.has_error():
                why = on_one_line(str(message.error.reason))
                back.append(Returned(sent, None, f"{why} (Flower's code {message.error.code})"))
            elif message.metadata.src_node_id != sent.node:
                back.append(Returned(sent, None, f"Another node replied, {message.metadata.src_node_id}."))
            else:
                back.append(Returned(sent, message))
        return back
