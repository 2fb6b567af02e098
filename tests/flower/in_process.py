"""Flower's grid and nodes in one process, without a network: a message goes straight to the ClientApp's handler.

Messages are made by Flower itself, so what a handler sees is what it would see in a deployment.  Time is a number.
"""

from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace

from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity


@dataclass
class Node:
    client: int
    node_id: int
    public_key: bytes
    node_config: dict
    online: bool = True
    silent: bool = False  # takes messages and never answers
    slow_s: float = 0.0
    fails: int = 0  # how often it still raises
    says: str = "The client raised."
    seen: list = field(default_factory=list)
    since: str = ""  # when it was let in


class InProcessGrid:
    """What `RoundLoop` uses of Flower's Grid, and a clock that stands still unless somebody waits."""

    def __init__(self, client_app, run_config, *, state, clients=5):
        self.client_app, self.run_config, self.state = client_app, run_config, state
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # as Flower does for a ServerApp
        self.now, self._ids = 0.0, count(1)
        self.nodes: list[Node] = []
        self._due: dict[str, tuple[float, Message]] = {}
        for client in range(clients):
            self.join(client)

    def join(self, client, *, node_id=None, key=None, **node_config):
        """Start a node; as Flower does it, under a new id."""
        config = {"partition-id": client, "state-dir": str(self.state), **node_config}
        node = Node(client, node_id or 1000 - len(self.nodes), key or f"key of {client}".encode(), config)
        self.nodes.append(node)
        return node

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    # what Flower offers

    def get_nodes(self):
        return [
            SimpleNamespace(node_id=n.node_id, public_key=n.public_key, last_activated_at=n.since)
            for n in self.nodes
            if n.online
        ]

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids):
        ready = [i for i in message_ids if i in self._due and self._due[i][0] <= self.now]
        return [self._due.pop(i)[1] for i in ready]

    def _push(self, message):
        node = next((n for n in self.nodes if n.node_id == message.metadata.dst_node_id), None)
        if node is None:
            return None
        identifier = f"message {next(self._ids)}"
        message.metadata.__dict__["_message_id"] = identifier
        node.seen.append(message)
        if not node.online:
            self._due[identifier] = (self.now, Message(Error(5, "The node is not there."), reply_to=message))
        elif not node.silent:
            self._due[identifier] = (self.now + node.slow_s, self._answer(node, message))
        return identifier

    def _answer(self, node, message):
        context = Context(
            run_id=1,
            node_id=node.node_id,
            node_config=node.node_config,
            state=RecordDict(),
            run_config=self.run_config,
        )
        if node.fails and message.metadata.message_type == "train":
            node.fails -= 1
            return Message(Error(2, node.says), reply_to=message)
        try:
            return self.client_app(message, context)
        except Exception as error:
            return Message(Error(2, str(error)), reply_to=message)
