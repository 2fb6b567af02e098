"""The server's part in one attempt at a round of secure aggregation, without clocks or sockets.

    begin()                requests of the stage KEYS, by client
    share()                those of SHARES, for the clients whose keys came
    attachments()          what goes with the orders, for those whose shares came
    unmask(numbers)        requests of UNMASK, once it is clear whose messages are in the sum
    total()                the sum of the numbers, or a `SecureError` if too few have helped

`take` looks at replies.  Who does not answer a stage is not asked in the next; the session knows by itself who is left.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping

import numpy as np

from fedcef.secure.primitives import (
    KEY,
    SEAL,
    SEED,
    SecureError,
    Whole,
    agreed,
    mask,
    public_key,
    put_together,
)
from fedcef.secure.ring import needed, neighbourhoods
from fedcef.secure.signing import SIGNATURE
from fedcef.secure.stages import Stage, StageMessage

_UNSIGNED = 2 * KEY + 32
"""Bytes of a client's public keys and of the hash of its seed; a signature may follow."""


class ServerSession:
    """One attempt with these clients; `share` of a neighbourhood must stay to the end, `neighbours` is 0 for all."""

    def __init__(
        self, run: bytes, round_: int, clients: Collection[int], *, share: float = 2 / 3, neighbours: int = 0
    ) -> None:
        self.run, self.round, self.session = run, round_, secrets.token_bytes(16)
        self.clients, self.share_, self.neighbours = tuple(sorted(clients)), share, neighbours
        self.stage = Stage.KEYS
        self._keys: dict[int, bytes] = {}
        self._near: dict[int, tuple[int, ...]] = {}
        self._sealed: dict[int, Mapping[int, bytes]] = {}
        self._numbers: dict[int, Whole] = {}
        self._bits = 0
        self._revealed: dict[int, Mapping[int, bytes]] = {}

    # requests

    def begin(self) -> dict[int, bytes]:
        """The requests of the first stage."""
        return {client: self._request(Stage.KEYS, client) for client in self.clients}

    def share(self) -> dict[int, bytes]:
        """The requests of the second stage; its members are those whose keys are here."""
        self._require(len(self._keys), "keys")
        self.stage = Stage.SHARES
        self._near = neighbourhoods(self._keys, self.neighbours)
        return {client: self._request(Stage.SHARES, client, self._public(near)) for client, near in self._near.items()}

    def _public(self, near: Collection[int]) -> dict[int, bytes]:
        """The keys of a neighbourhood, with signatures if all have signed; entries have one length."""
        keys = {who: self._keys[who] for who in near}
        signed = all(key[_UNSIGNED:] for key in keys.values())
        return {who: key[: 2 * KEY] + key[_UNSIGNED:] * signed for who, key in keys.items()}

    def attachments(self) -> dict[int, bytes]:
        """What goes with the orders of those who are left: the shares that their neighbours sealed for them."""
        self._require(len(self._sealed), "shares")
        self.stage = Stage.MASKED
        there = {client: self._left(client, self._sealed) for client in self._sealed}
        lonely = [client for client, near in there.items() if len(near) < self.threshold(client)]
        if lonely:
            raise SecureError(self._too_few(f"of the neighbours of client {lonely[0]} have shared"))
        return {
            client: self._request(
                Stage.MASKED, client, {who: self._sealed[who][client] for who in near if who != client}
            )
            for client, near in there.items()
        }

    def unmask(self, numbers: Mapping[int, Whole], bits: int) -> dict[int, bytes]:
        """The requests of the last stage, to those whose masked numbers are here; the others are out of the sum."""
        if not numbers.keys() <= self._sealed.keys():
            raise SecureError("A message came of a client that has shared nothing.")
        self.stage, self._numbers, self._bits = Stage.UNMASK, dict(numbers), bits
        for client in self._sealed:
            if len(self._left(client, self._numbers)) < self.threshold(client):
                raise SecureError(self._too_few(f"of the neighbours of client {client} have sent their messages"))
        return {
            client: self._request(
                Stage.UNMASK,
                client,
                {who: bytes([who in self._numbers]) for who in self._left(client, self._sealed)},
            )
            for client in self._numbers
        }

    # replies

    def waited_for(self) -> set[int]:
        """Whose reply to the current stage is missing."""
        asked, came = {
            Stage.KEYS: (set(self.clients), self._keys.keys()),
            Stage.SHARES: (set(self._keys), self._sealed.keys()),
            Stage.UNMASK: (set(self._numbers), self._revealed.keys()),
        }.get(self.stage, (set(), set()))
        return asked - came

    def take(self, client: int, reply: StageMessage) -> None:
        """A client's reply to the current stage; one that cannot be used raises a `SecureError`."""
        if reply.stage == Stage.REFUSED and reply.session == self.session:
            raise SecureError(reply.remark or "The client refuses without a reason.")
        if (reply.run, reply.session, reply.stage, reply.client) != (self.run, self.session, self.stage, client):
            raise SecureError("The reply is of another session or stage.")
        if client not in self.waited_for():
            return
        expected, sizes = {
            Stage.KEYS: ({client}, (_UNSIGNED, _UNSIGNED + SIGNATURE)),
            Stage.SHARES: (set(self._near.get(client, ())) - {client}, (2 * SEED + SEAL,)),
            Stage.UNMASK: (set(self._left(client, self._sealed)), (SEED,)),
        }[self.stage]
        if reply.entries.keys() != expected or any(len(entry) not in sizes for entry in reply.entries.values()):
            raise SecureError(f"The reply to the stage {self.stage.name} has not the entries that it should.")
        if self.stage == Stage.KEYS:
            self._keys[client] = reply.entries[client]
        elif self.stage == Stage.SHARES:
            self._sealed[client] = reply.entries
        else:
            self._revealed[client] = reply.entries

    # the sum

    def complete(self) -> bool:
        """Whether the shares that are needed have come."""
        return self.stage == Stage.UNMASK and all(
            len(self._left(client, self._revealed)) >= self.threshold(client) for client in self._sealed
        )

    def total(self) -> Whole:
        """The sum of the clients' numbers modulo 2^bits."""
        if not self.complete():
            raise SecureError(
                self._too_few(f"clients have helped to unmask ({len(self._revealed)} of {len(self._numbers)})")
            )
        count = len(next(iter(self._numbers.values())))
        total = np.zeros(count, dtype=np.uint32)
        for client, numbers in self._numbers.items():
            own = self._secret(client)
            if hashlib.sha256(own).digest() != self._keys[client][2 * KEY : _UNSIGNED]:
                raise SecureError(f"The shares of client {client}'s mask do not fit together; the round is lost.")
            total += numbers - mask(own, count, self._bits)
        for gone in self._sealed.keys() - self._numbers.keys():
            pairing = self._secret(gone)
            if public_key(pairing) != self._keys[gone][KEY : 2 * KEY]:
                raise SecureError(f"The shares of client {gone}'s key do not fit together; the round is lost.")
            for who in self._left(gone, self._numbers):
                pair = mask(agreed(pairing, self._keys[who][KEY : 2 * KEY], self.session, b"pair"), count, self._bits)
                total = total - pair if who < gone else total + pair
        return total & np.uint32((1 << self._bits) - 1)

    def threshold(self, client: int) -> int:
        """How many of a client's neighbourhood must stay to the end."""
        return needed(self.share_, len(self._near[client]))

    def _secret(self, client: int) -> bytes:
        """Of the two secrets of a client, the one that is revealed."""
        shares = {who: self._revealed[who][client] for who in self._left(client, self._revealed)}
        return put_together(shares, self.threshold(client), self._near[client])

    def _left(self, client: int, among: Collection[int]) -> list[int]:
        """Those of a client's neighbourhood who are among these."""
        return [who for who in self._near.get(client, ()) if who in among]

    def _require(self, found: int, what: str) -> None:
        if found < needed(self.share_, min(len(self.clients), self.neighbours + 1 if self.neighbours else 2**32)):
            raise SecureError(self._too_few(f"clients have sent their {what} ({found} of {len(self.clients)})"))

    def _too_few(self, what: str) -> str:
        return f"Round {self.round} cannot be unmasked: too few {what}; it is tried again with new keys."

    def _request(self, stage: Stage, client: int, entries: Mapping[int, bytes] | None = None) -> bytes:
        threshold = self.threshold(client) if stage == Stage.SHARES else 0
        head = (stage, self.run, self.session, self.round, client)
        return StageMessage(*head, entries or {}, threshold).encode()
