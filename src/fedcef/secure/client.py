"""A client's part in one attempt at a round of secure aggregation.

A session only goes forward, and what it has said once it does not say otherwise: the same request is answered by the
same bytes, another one for the same stage is refused.  So nobody gets shares of both secrets of a client from here, nor
two vectors under one mask.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedcef.secure.primitives import (
    KEY,
    SEED,
    SecureError,
    Whole,
    agreed,
    mask,
    new_seed,
    opened,
    public_key,
    sealed,
    shared_out,
)
from fedcef.secure.ring import needed
from fedcef.secure.signing import SIGNATURE, Signing
from fedcef.secure.stages import Stage, StageMessage


@dataclass(frozen=True)
class ClientSession:
    """What a client knows of a session; a value, so that it can be on the disk before anything of it is sent."""

    run: bytes
    session: bytes
    round: int
    client: int
    sealing: bytes = field(default_factory=new_seed)
    """The seed of the key by which neighbours seal shares for this client."""
    pairing: bytes = field(default_factory=new_seed)
    """The seed of the key behind the masks with its neighbours; revealed by them if its message is not in the sum."""
    own: bytes = field(default_factory=new_seed)
    """The seed of its own mask; revealed by its neighbours if its message is in the sum."""
    threshold: int = 0
    keys: dict[int, bytes] = field(default_factory=dict)
    """The public keys of its neighbourhood."""
    shares: dict[int, bytes] = field(default_factory=dict)
    """Shares of `own` and `pairing` that came from neighbours, and of its own."""
    answered: dict[str, list[str]] = field(default_factory=dict)
    """By stage: a digest of the request, and the reply in hexadecimal digits."""
    masked: str = ""
    """A digest of the vector that was masked."""

    @classmethod
    def begun(cls, request: StageMessage) -> ClientSession:
        """A session with new keys."""
        return cls(request.run, request.session, request.round, request.client)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {name: _text(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> ClientSession:
        """What `to_json` gave."""
        raw = {name: bytes.fromhex(table[name]) for name in ("run", "session", "sealing", "pairing", "own")}
        maps = {
            name: {int(who): bytes.fromhex(value) for who, value in table[name].items()} for name in ("keys", "shares")
        }
        return cls(**{**table, **raw, **maps})

    # the stages

    def answer(self, request: StageMessage, signing: Signing | None = None) -> tuple[ClientSession, StageMessage]:
        """The session after a request, and the reply to it; with `signing` keys are signed, and have to be."""
        stage, digest = request.stage, _digest(request.encode())
        if known := self.answered.get(stage.name):
            if known[0] != digest:
                raise SecureError(f"Client {self.client} has answered another request of the stage {stage.name}.")
            return self, self._reply(stage, _pairs(known[1]))
        if stage == Stage.KEYS:
            signature = signing.sign(self._signed(self.client, self.public)) if signing else b""
            after, entries = self, {self.client: self.public + hashlib.sha256(self.own).digest() + signature}
        elif stage == Stage.SHARES:
            after, entries = self._shared(request, signing)
        elif stage == Stage.UNMASK:
            after, entries = self, self._revealed(request)
        else:
            raise SecureError(f"A client does not answer the stage {stage.name} by itself.")
        text = "".join(f"{who:08x}{entry.hex()}." for who, entry in entries.items())
        answered = {**after.answered, stage.name: [digest, text]}
        return replace(after, answered=answered), self._reply(stage, entries)

    @property
    def public(self) -> bytes:
        """Both public keys."""
        return public_key(self.sealing) + public_key(self.pairing)

    def _signed(self, client: int, public: bytes) -> bytes:
        """What a client signs: its keys, for this attempt only."""
        return self.run + self.session + self.round.to_bytes(4, "little") + client.to_bytes(4, "little") + public

    def _shared(self, request: StageMessage, signing: Signing | None) -> tuple[ClientSession, dict[int, bytes]]:
        keys, threshold = {who: entry[: 2 * KEY] for who, entry in request.entries.items()}, request.threshold
        if keys.get(self.client) != self.public:
            raise SecureError(f"The keys of client {self.client} came back changed.")
        if signing:
            for who in sorted(keys.keys() - {self.client}):
                signing.check(who, self._signed(who, keys[who]), request.entries[who][2 * KEY :])
        sizes = {len(entry) for entry in request.entries.values()}
        if not sizes <= {2 * KEY, 2 * KEY + SIGNATURE} or len(set(keys.values())) < len(keys):
            raise SecureError("Two clients of a neighbourhood have the same keys, or one has none.")
        if not needed(0.5, len(keys)) <= threshold <= len(keys):
            raise SecureError(
                f"A threshold of {threshold} in a neighbourhood of {len(keys)} is not allowed; it is more than half."
            )
        among = sorted(keys)
        own, pairing = (shared_out(seed, threshold, among) for seed in (self.own, self.pairing))
        entries = {
            who: sealed(self._seal(self.client, who, keys[who]), own[who] + pairing[who], b"shares")
            for who in among
            if who != self.client
        }
        mine = {self.client: own[self.client] + pairing[self.client]}
        return replace(self, keys=keys, threshold=threshold, shares=mine), entries

    def masking(self, request: StageMessage, share: float = 0.5) -> ClientSession:
        """The session with the shares that came for this client, ready to mask.

        `share` is the part of a neighbourhood that the client's own settings want to stay to the end.
        """
        if request.stage != Stage.MASKED or Stage.SHARES.name not in self.answered:
            raise SecureError("Shares come after keys, and masks after shares.")
        if self.threshold < needed(share, len(self.keys)):
            raise SecureError(
                f"The server asks for {self.threshold} of {len(self.keys)} neighbours; this client's settings for "
                f"{needed(share, len(self.keys))}."
            )
        known, digest = self.answered.get(Stage.MASKED.name), _digest(request.encode())
        if known:
            if known[0] != digest:
                raise SecureError(f"Client {self.client} has masked its message for other neighbours.")
            return self
        strangers = request.entries.keys() - (self.keys.keys() - {self.client})
        if strangers:
            raise SecureError(f"Clients {sorted(strangers)} are no neighbours of client {self.client}.")
        came = {
            who: opened(self._seal(who, self.client, self.keys[who]), data, b"shares")
            for who, data in request.entries.items()
        }
        if any(len(shares) != 2 * SEED for shares in came.values()):
            raise SecureError("A neighbour's shares have another length than two seeds.")
        if len(came) + 1 < self.threshold:
            raise SecureError(
                f"{len(came) + 1} of client {self.client}'s neighbourhood are left; {self.threshold} are needed."
            )
        answered = {**self.answered, Stage.MASKED.name: [digest, ""]}
        return replace(self, shares={**self.shares, **came}, answered=answered)

    def mask(self, numbers: Whole, bits: int) -> tuple[ClientSession, Whole]:
        """The session, and numbers modulo 2^bits under all masks; the same session masks no other numbers."""
        if Stage.MASKED.name not in self.answered:
            raise SecureError("There are no masks before the shares have come.")
        digest = _digest(bits.to_bytes(2, "little") + np.ascontiguousarray(numbers, dtype="<u4").tobytes())
        if self.masked not in ("", digest):
            raise SecureError("Another message was masked in this session; the same mask on two would show both.")
        total = numbers.astype(np.uint32) + mask(self.own, len(numbers), bits)
        for who in self.shares.keys() - {self.client}:
            pair = mask(agreed(self.pairing, self.keys[who][KEY:], self.session, b"pair"), len(numbers), bits)
            total = total + pair if self.client < who else total - pair
        return replace(self, masked=digest), total & np.uint32((1 << bits) - 1)

    def _revealed(self, request: StageMessage) -> dict[int, bytes]:
        inside = {who for who, flag in request.entries.items() if flag == b"\1"}
        if not self.masked or request.entries.keys() != self.shares.keys():
            raise SecureError("Before shares are revealed, the message is masked, for just these neighbours.")
        if self.client not in inside or len(inside) < self.threshold:
            raise SecureError(
                f"{len(inside)} messages of client {self.client}'s neighbourhood are in the sum; {self.threshold} are "
                "needed, its own among them."
            )
        return {who: shares[:SEED] if who in inside else shares[SEED:] for who, shares in sorted(self.shares.items())}

    def _seal(self, sender: int, receiver: int, theirs: bytes) -> bytes:
        purpose = f"seal {sender} {receiver}".encode()
        return agreed(self.sealing, theirs[:KEY], self.session, purpose)

    def _reply(self, stage: Stage, entries: dict[int, bytes]) -> StageMessage:
        return StageMessage(stage, self.run, self.session, self.round, self.client, entries)


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return {str(who): _text(one) for who, one in value.items()} if isinstance(value, dict) else value


def _pairs(text: str) -> dict[int, bytes]:
    return {int(one[:8], 16): bytes.fromhex(one[8:]) for one in text.split(".") if one}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
