"""A client's session on its own disk: every step is there before the bytes that it leads to are sent.

A process serves one message, so the session is read and written for each.  One session is kept, the newest; a new
attempt at a round forgets the keys of the one before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fedcef.core.disk import Disk, PrivateDisk
from fedcef.core.errors import FedcefError
from fedcef.secure.client import ClientSession
from fedcef.secure.primitives import SecureError, Whole
from fedcef.secure.signing import Signing
from fedcef.secure.stages import Stage, StageMessage, decode_stage

NAME = "secure.session"


class SessionStore:
    """The session of the client whose states are in this folder; `signing` gives the keys to sign and check with."""

    def __init__(
        self,
        folder: Path,
        client: int,
        disk: Disk | None = None,
        signing: Callable[[], Signing | None] = lambda: None,
    ) -> None:
        self.path, self.client, self.disk, self.signing = folder / NAME, client, disk or PrivateDisk(), signing

    def handle(self, data: bytes) -> bytes:
        """The reply to a request of a stage; bytes that are no such request raise a `StageError`."""
        request = decode_stage(data)
        try:
            session, reply = self._session(request).answer(request, self.signing())
            self._save(session)
        except FedcefError as error:
            head = (request.run, request.session, request.round, request.client)
            return StageMessage(Stage.REFUSED, *head, remark=str(error)).encode()
        return reply.encode()

    def masking(self, data: bytes, run: bytes, round_: int, share: float) -> Masking:
        """The masks for the message of this run and round."""
        request = decode_stage(data)
        if (request.run, request.round) != (run, round_):
            raise SecureError("The shares that came with the order are of another run or round.")
        session = self._session(request).masking(request, share)
        self._save(session)
        return Masking(self, session)

    def _session(self, request: StageMessage) -> ClientSession:
        if request.client != self.client:
            raise SecureError(f"The request is for client {request.client}; this is client {self.client}.")
        found = self._read()
        if found is not None and (found.run, found.session, found.round) == (
            request.run,
            request.session,
            request.round,
        ):
            return found
        if request.stage != Stage.KEYS:
            raise SecureError(f"Client {self.client} does not know this session; it has lost or replaced its keys.")
        return ClientSession.begun(request)

    def _read(self) -> ClientSession | None:
        try:
            return ClientSession.from_json(json.loads(self.path.read_text("utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # a session that cannot be read is lost, and the client leaves the round

    def _save(self, session: ClientSession) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=self.disk.dir_mode)
        self.disk.replace(self.path, json.dumps(session.to_json()).encode())


class Masking:
    """A session that is ready to mask one message."""

    def __init__(self, store: SessionStore, session: ClientSession) -> None:
        self._store, self._session = store, session

    def __call__(self, numbers: Whole, bits: int) -> Whole:
        """Numbers modulo 2^bits, masked; it is on the disk that they were, and which."""
        self._session, masked = self._session.mask(numbers, bits)
        self._store._save(self._session)
        return masked
