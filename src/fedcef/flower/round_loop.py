"""The round loop: orders out and replies in over Flower's grid, until the run is over.

Replies are handled as they come.  Flower's grid is polled: often while replies come in, less often while none do.
Nodes may come and go at any time; one that comes back in the middle of a round gets its order again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from flwr.app import MessageType

from fedcef.core.errors import RunError
from fedcef.deployment import Coordinator
from fedcef.deployment.recovery import advice
from fedcef.deployment.refusals import rounds_seen
from fedcef.flower.mail import Grid, Mail, Returned, Sent
from fedcef.flower.nodes import Nodes
from fedcef.flower.records import bytes_of, with_bytes
from fedcef.flower.secure_stages import STAGE, SecureStages
from fedcef.runs.reader import Record
from fedcef.secure.primitives import SecureError, Whole

SHORTEST_S, LONGEST_S = 0.01, 0.2
"""Between two looks for replies; within these, a twentieth of the time since anything came or went."""
LOOK_S = 3.0
"""Between looks at who is there."""
STALE = 3.0
"""Flower keeps an order for so many deadlines, so that a late reply can still be counted as such."""


class Stopped(Exception):
    """Somebody asked the server to stop."""


class RoundLoop:
    """Rounds of one server over one grid.

    Args:
        grid: Flower's.
        server: Whose rounds they are.
        watch: Called with the record of every round.
        tell: Called with a sentence about what a person should know.
        stopped: Asked now and then whether to stop, by raising `Stopped`.
        clock, sleep: Time, in seconds.
    """

    def __init__(
        self,
        grid: Grid,
        server: Coordinator,
        *,
        watch: Callable[[Record], None] = lambda record: None,
        tell: Callable[[str], None] = lambda sentence: None,
        stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._server, self._watch, self._tell = server, watch, tell
        self._stopped, self._clock, self._sleep = stopped, clock, sleep
        self._mail = Mail(grid)
        self._nodes = Nodes(grid, self._mail, server, tell)
        self._looked_at, self._quiet_since = float("-inf"), clock()
        self._secure, self._lost = server.settings.secure is not None, 0
        self._stages = SecureStages(server, self._ask, self._step, clock)

    def run(self) -> Record:
        """All rounds that are left; returns the summary."""
        if not self._server.finished:
            self._wait_for_clients(self._server.settings.num_clients, self._server.deployment.patience_s)
        while not self._server.finished:
            self._watch(self._round())
        return self._server.finish()

    def _round(self) -> Record:
        """One round, in as many attempts as it takes; what all clients refuse for one reason is not tried for ever."""
        unusable = refused = 0
        while True:
            self._wait_for_clients(self._server.needed)
            self._look()
            orders = self._server.start_round(self._clock(), self._nodes.connected())
            try:
                total = self._replies(orders)
            except SecureError as error:
                self._without_sum(error)
                continue
            if self._server.can_close(self._clock()):
                record = self._server.close_round(self._clock(), total)
                if record is not None:
                    return record
                unusable += 1
                if unusable > self._server.deployment.retries:
                    raise RunError(
                        f"Round {self._server.round} could not end in {unusable} attempts; see refused.jsonl."
                    )
                continue
            why = self._server.refused_by_all()
            refused = refused + 1 if why else 0
            if why and (rounds_seen(why) or refused > self._server.deployment.retries):
                raise RunError(self._hopeless(why))
            self._tell(f"Round {self._server.round} has too few replies; it is tried again.")

    def _replies(self, orders: Mapping[int, bytes]) -> Whole | None:
        """Send orders and wait for replies until the round can end or stalls; in a secure run, their sum."""
        if self._secure:
            self._stages.agree(orders)
        for client, order in orders.items():
            self._send(client, order)
        while not self._server.can_close(self._clock()) and not self._server.stalled(self._clock()):
            self._step()
        total = self._stages.unmasked() if self._secure and self._server.can_close(self._clock()) else None
        self._lost = 0
        return total

    def _without_sum(self, error: SecureError) -> None:
        """An attempt whose sum cannot be unmasked; where all who left it have said why, it is not tried for ever."""
        why = self._stages.why
        self._lost = self._lost + 1 if why and all(why.values()) else 0
        if self._lost > self._server.deployment.retries:
            client, reason = min(why.items())
            raise RunError(f"{error}  It was so {self._lost} times; client {client} says: {reason}") from None
        self._tell(str(error))
        self._step()

    def _hopeless(self, why: str) -> str:
        """That nobody does the round, and what to do."""
        path, round_ = self._server.state.folder.path, self._server.round
        if rounds_seen(why):
            return (
                f"Clients have seen later rounds than this server, and the others are too few: {why}  {path} is an "
                f"older copy of the run.  {advice(path)}"
            )
        return f"All clients that have not done round {round_} refuse it for one reason: {why}  Mend that, and resume."

    def _wait_for_clients(self, wanted: int, patience_s: float = float("inf")) -> None:
        """Until so many clients are there, or enough and the patience is over."""
        since, told = self._clock(), -1
        self._look()
        while (found := len(self._nodes.connected())) < wanted:
            patient = self._clock() - since < patience_s
            if not patient and found >= self._server.needed:
                return
            if found != told:
                told = found
                self._tell(f"{found} of {wanted} clients are there; waiting for the others.")
            self._step()

    def _step(self) -> None:
        """Handle what has come, or wait a little."""
        if self._stopped():
            raise Stopped
        if self._clock() - self._looked_at >= LOOK_S:
            self._look()
        back = self._mail.returned()
        for one in back:
            self._take(one)
        if back:
            self._quiet_since = self._clock()
        else:
            self._sleep(min(max((self._clock() - self._quiet_since) / 20, SHORTEST_S), LONGEST_S))

    def _look(self) -> None:
        """See who is there; whoever has come back gets its order again."""
        self._looked_at = self._clock()
        for client in self._nodes.look(self._looked_at):
            self._again(client)

    def _take(self, back: Returned) -> None:
        if back.sent.kind == MessageType.QUERY:
            client = self._nodes.answered(back, self._clock())
            if client is not None:
                self._again(client)
        elif back.sent.kind == STAGE:
            self._stage_reply(back)
        elif not self._secure or (back.sent.session == self._stages.name and not self._stages.unmasking):
            client, order = self._reply(back)
            if client is not None and order is not None:
                self._send(client, order)

    def _again(self, client: int) -> None:
        """A client has come back: it gets what it has not answered."""
        self._stages.again(client)
        if not self._secure or (client in self._stages.attached and not self._stages.unmasking):
            order = self._server.repeat(client)
            if order is not None:
                self._send(client, order)

    def _stage_reply(self, back: Returned) -> None:
        client = self._server.state.roster.number(self._nodes.identity(back.sent.node))
        if client is None or back.sent.session != self._stages.name:
            return
        if back.message is not None:
            self._stages.take(client, bytes_of(back.message))
        else:
            self._stages.failed(client, back.why)

    def _reply(self, back: Returned) -> tuple[int | None, bytes | None]:
        """The client of a reply, and the order to send it now, if any."""
        identity = self._nodes.identity(back.sent.node)
        if back.message is not None:
            verdict = self._server.receive(identity, bytes_of(back.message))
        elif self._server.open is not None and back.sent.round == self._server.round:
            number = self._server.state.roster.number(identity)
            who = identity if number is None else f"Client {number}"
            self._tell(f"{who} failed in round {back.sent.round}: {back.why}")
            verdict = self._server.failed(identity, back.why)
        else:
            return None, None
        return self._server.state.roster.number(identity), verdict.order

    def _send(self, client: int, order: bytes) -> None:
        node = self._nodes.node(client)
        if node is not None:  # otherwise it gets the order when it comes back
            masks = self._stages.attached.get(client, b"")
            sent = Sent(MessageType.TRAIN, node, self._server.round, self._stages.name)
            if masks or not self._secure:
                self._mail.send(sent, with_bytes(order, masks), STALE * self._server.deployment.deadline_s)
                self._quiet_since = self._clock()

    def _ask(self, client: int, request: bytes) -> None:
        """Send a request of a stage, which is not delivered when the stage is over."""
        node = self._nodes.node(client)
        if node is not None:
            sent = Sent(STAGE, node, self._server.round, self._stages.name)
            self._mail.send(sent, with_bytes(request), self._server.deployment.deadline_s)
            self._quiet_since = self._clock()
