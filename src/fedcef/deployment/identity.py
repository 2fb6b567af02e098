"""Who is who: the run that a message belongs to, and the clients' numbers."""

from __future__ import annotations

import hashlib
import json
import secrets
import tomllib
from dataclasses import dataclass
from pathlib import Path

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.runs.settings import Settings

HALF = 8
LOCAL = (
    *("name", "label", "device", "oracle", "cuda_graphs"),
    *("snapshot_every", "eval", "deployment", "compare", "reference"),
)
"""Settings that each machine may choose for itself: they change no message's meaning."""


@dataclass(frozen=True)
class RunId:
    """Which settings, and which run with them.

    A client tells by the first half whether the server means the experiment that it was started for; the second half is
    drawn once by the server, so that a second run of the same experiment is another run.
    """

    settings: bytes  # 8
    nonce: bytes  # 8

    @classmethod
    def new(cls, config: Settings) -> RunId:
        return cls(settings_digest(config), secrets.token_bytes(HALF))

    @classmethod
    def read(cls, raw: bytes) -> RunId:
        return cls(raw[:HALF], raw[HALF:])

    def __bytes__(self) -> bytes:
        return self.settings + self.nonce

    def __str__(self) -> str:
        return bytes(self).hex()


def read_run_id(path: Path) -> RunId:
    """The id that a server gave its run."""
    try:
        return RunId.read(bytes.fromhex(json.loads(path.read_text("utf-8"))["run"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None


def settings_digest(config: Settings) -> bytes:
    """A hash of all settings, defaults and seed included, except what is a machine's own business."""
    table = tomllib.loads(config.to_toml())
    shared = {key: value for key, value in table.items() if key not in LOCAL}
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).digest()[:HALF]


class Roster:
    """The clients' numbers, 0 to N-1, by the name under which the transport knows them; kept on disk.

    A number is given once: whoever comes under another name does not get it.
    """

    def __init__(self, path: Path, num_clients: int, disk: Disk) -> None:
        self._path, self._num_clients, self._disk = path, num_clients, disk
        self._numbers: dict[str, int] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def number(self, identity: str) -> int | None:
        """The number of a client, or nothing if it is unknown."""
        return self._numbers.get(identity)

    def identity(self, number: int) -> str | None:
        return next((identity for identity, given in self._numbers.items() if given == number), None)

    def enroll(self, identity: str, number: int | None = None) -> int:
        """Give a client its number: the wanted one, or the lowest that is free.  Asking again changes nothing."""
        known = self._numbers.get(identity)
        if known is not None:
            if number not in (None, known):
                raise RunError(f"{identity} is client {known} of this run and cannot become client {number}.")
            return known
        taken = set(self._numbers.values())
        free = [n for n in range(self._num_clients) if n not in taken]
        if number is None and not free:
            raise RunError(f"All {self._num_clients} clients of this run are known; {identity} is one too many.")
        chosen = free[0] if number is None else number
        if chosen not in free:
            raise RunError(
                f"{identity} asks to be client {chosen}, which is taken or not among 0 to {self._num_clients - 1}."
            )
        numbers = {**self._numbers, identity: chosen}
        self._disk.replace(self._path, json.dumps(numbers, indent=2).encode())
        self._numbers = numbers
        return chosen
