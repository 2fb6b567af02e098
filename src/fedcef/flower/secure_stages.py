"""The stages of secure aggregation around a round's orders, over Flower's grid.

    agree     keys and shares, before the orders; those who are left get theirs with what masks are made of
    unmasked  shares of masks, once the messages are there

A stage waits for everyone who was asked, or as long as a round does for its replies; who has not answered by then is
out of this attempt.  Requests are not delivered later than that: a share that comes when an attempt was given up could
tell the server two sums of different clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from fedcef.compressors.grid import Grid
from fedcef.core.errors import FedcefError
from fedcef.deployment import Coordinator
from fedcef.deployment.secure_sums import in_range, numbers_of
from fedcef.secure.primitives import SecureError, Whole
from fedcef.secure.server import ServerSession
from fedcef.secure.stages import Stage, decode_stage

STAGE = "query.secure"
"""The type of Flower's messages for stages."""


class SecureStages:
    """The session of the current attempt.

    Args:
        server: Whose rounds they are.
        send: Called with a client and a request, to send it now.
        step: Called again and again to handle what has come, or to wait a little.
        clock: Time, in seconds.
    """

    def __init__(
        self,
        server: Coordinator,
        send: Callable[[int, bytes], None],
        step: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._server, self._send, self._step, self._clock = server, send, step, clock
        self._session: ServerSession | None = None
        self._requests: Mapping[int, bytes] = {}
        self._out: set[int] = set()
        self.attached: Mapping[int, bytes] = {}
        """What goes with the orders, by client."""
        self.unmasking = False
        """Whether it is clear whose messages are in the sum; those that come now are too late."""
        self.why: dict[int, str] = {}
        """What those say who are out of this attempt; nothing if they have not answered."""

    @property
    def name(self) -> bytes:
        """Of the session."""
        return self._session.session if self._session is not None else b""

    def agree(self, clients: Collection[int]) -> None:
        """Keys and shares for a new attempt; too few left raise a `SecureError`."""
        settings = self._server.settings.secure
        assert settings is not None
        self._session = ServerSession(
            bytes(self._server.run),
            self._server.round,
            clients,
            share=settings.threshold,
            neighbours=settings.neighbours,
        )
        self.attached, self.why, self.unmasking = {}, {}, False
        self._exchange(self._session.begin())
        self._exchange(self._session.share())
        self.attached = self._session.attachments()
        self._server.sent += sum(map(len, self.attached.values()))
        self._server.leave_out(set(clients) - self.attached.keys(), self._clock())
        self._requests = {}

    def unmasked(self) -> Whole:
        """The sum of the messages that are there; too few shares raise a `SecureError`."""
        grid, open_ = self._server.protocol.algorithm.compressor, self._server.open
        assert self._session is not None
        assert open_ is not None
        assert isinstance(grid, Grid)
        self.unmasking = True
        numbers = {client: numbers_of(one.message) for client, one in open_.accepted.items()}
        self._exchange(self._session.unmask(numbers, grid.width), self._session.complete)
        total = self._session.total()
        if not in_range(total, grid, len(numbers)):
            raise SecureError(
                f"Round {self._server.round} is lost: its sum is out of range, so that a client has masked or revealed "
                "something else than it should; it is tried again with new keys."
            )
        return total

    def take(self, client: int, data: bytes) -> None:
        """A client's reply to a request."""
        self._server.received += len(data)
        try:
            reply = decode_stage(data)
            if self._session is not None:
                self._session.take(client, reply)
        except FedcefError as error:
            if self._session is not None and _is_of(data, self._session):
                self.failed(client, str(error))

    def failed(self, client: int, why: str) -> None:
        """A client has not answered, and will not."""
        self._out.add(client)
        self.why[client] = why

    def again(self, client: int) -> None:
        """A client has come back: it is asked again what it has not answered."""
        if self._session is not None and client in self._session.waited_for() and client in self._requests:
            self._out.discard(client)
            self._ask(client)

    def _exchange(self, requests: Mapping[int, bytes], enough: Callable[[], bool] = lambda: False) -> None:
        assert self._session is not None
        self._requests, self._out = requests, set()
        began, settings = self._clock(), self._server.deployment
        quorum, since = max(self._server.needed, math.ceil(settings.quorum * len(requests))), math.inf
        for client in requests:
            self._ask(client)
        while (missing := self._session.waited_for() - self._out) and not enough():
            now = self._clock()
            if len(requests) - len(self._session.waited_for()) >= quorum:
                since = min(since, now)
            if now - began >= settings.deadline_s or now - since >= settings.grace_s:
                break
            self._step()
        self.why |= dict.fromkeys(missing, "") if missing and not enough() else {}

    def _ask(self, client: int) -> None:
        self._server.sent += len(self._requests[client])
        self._send(client, self._requests[client])


def _is_of(data: bytes, session: ServerSession) -> bool:
    """Whether bytes are a reply of this session, and of its current stage or a refusal."""
    try:
        reply = decode_stage(data)
    except FedcefError:
        return True  # unreadable: from whoever was asked last
    return reply.session == session.session and reply.stage in (Stage.REFUSED, session.stage)
