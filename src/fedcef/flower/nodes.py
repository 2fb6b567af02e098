"""Which client is behind a node.

Flower knows nodes by ids, which change when a node without a key is started again.  A client is known by its number, or
by its public key; every new node is asked for its number once, and enrolled.

* By number: whoever claims a number last has it.  So a client that is started again comes back, and so might anybody
  else: for networks where everyone is trusted.
* By key: a key's number is given once per run and kept on the server's disk.  No other key gets it.
"""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import MessageType, RecordDict

from fedcef.core.errors import RunError
from fedcef.core.origin import fingerprint
from fedcef.deployment import Coordinator
from fedcef.deployment.keys import key_name
from fedcef.flower.mail import Grid, Mail, NodeInfo, Returned, Sent
from fedcef.flower.records import code_of, number_of

ASK_TTL_S = 300.0
"""How long a question waits for a node."""
ASK_AGAIN_S = 5.0
"""How long a node that gave no number is left alone."""
REFUSED_AGAIN_S = 60.0
"""How long one is that was refused; with a key it comes back under the same id when it is started again."""


def _activated(info: NodeInfo | None) -> str | None:
    """When a node was let in, by which a short absence can be seen too; None if it is not there."""
    return None if info is None else str(getattr(info, "last_activated_at", ""))


class Nodes:
    """The nodes that are there, and the clients that they are."""

    def __init__(self, grid: Grid, mail: Mail, server: Coordinator, tell: Callable[[str], None]) -> None:
        self._grid, self._mail, self._server, self._tell = grid, mail, server, tell
        self._present: dict[int, NodeInfo] = {}
        self._ask_at: dict[int, float] = {}  # nodes that are not asked before this time
        self._mute: set[int] = set()
        self._refused: dict[int, str] = {}
        self._client: dict[int, int] = {}
        self._node: dict[int, int] = {}

    def look(self, now: float) -> list[int]:
        """See who is there, and ask those who are new; returns the clients whose nodes were away and are there again.

        A node with a key comes back under its old id, and what it was sent before may be lost.
        """
        before, self._present = self._present, {node.node_id: node for node in self._grid.get_nodes()}
        for node in sorted(self._present.keys() - self._client.keys()):
            if now >= self._ask_at.get(node, now):
                self._ask_at[node] = float("inf")
                self._mail.send(Sent(MessageType.QUERY, node), RecordDict(), ASK_TTL_S)
        again = {node for node, info in self._present.items() if _activated(before.get(node)) != _activated(info)}
        return sorted(client for client, node in self._node.items() if node in again)

    def connected(self) -> set[int]:
        """The clients whose nodes are there."""
        return {client for client, node in self._node.items() if node in self._present}

    def node(self, client: int) -> int | None:
        """The node of a client, if it is there."""
        node = self._node.get(client)
        return node if node in self._present else None

    def identity(self, node: int) -> str:
        """The name under which a node's replies are looked at."""
        info = self._present.get(node)
        if self._server.deployment.identity == "key":
            return key_name(info.public_key) if info else f"node-{node}"
        client = self._client.get(node)
        return f"client-{client}" if client is not None and self._node[client] == node else f"node-{node}"

    def answered(self, back: Returned, now: float) -> int | None:
        """Enrol a node that has said who it is; the client's number if that is news."""
        node = back.sent.node
        number = number_of(back.message) if back.message is not None else None
        if number is None or back.message is None:
            self._ask_at[node] = now + ASK_AGAIN_S
            if node not in self._mute:
                self._tell(f"Node {node} does not say which client it is: {back.why or 'it gives no number.'}")
            self._mute.add(node)
            return None
        try:
            name = self.identity(node) if self._server.deployment.identity == "key" else f"client-{number}"
            self._server.enroll(name, number)
        except RunError as error:
            if self._refused.get(node) != str(error):
                self._tell(f"Node {node} is refused: {error}")
            self._refused[node] = str(error)
            self._ask_at[node] = now + REFUSED_AGAIN_S  # its number may be corrected meanwhile
            return None
        if (code := code_of(back.message)) != fingerprint():
            self._tell(
                f"Client {number} has other code of fedcef ({code or 'unknown'}) than this server ({fingerprint()}); "
                "install the same version on both."
            )
        before = self._node.get(number)
        if before in self._present and before != node:
            self._tell(f"Client {number} is now node {node}; node {before} is not asked any more.")
        self._client[node], self._node[number] = number, node
        return number
