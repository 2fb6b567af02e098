"""Who is who: the run that a message belongs to, and the clients' numbers."""

from __future__ import annotations

import hashlib
import json
import secrets
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.runs.settings import Settings

HALF = 8
LOCAL = (
    *("name", "label", "device", "oracle", "cuda_graphs"),
    *("snapshot_every", "eval", "deployment", "compare", "reference"),
    *("store", "cohort_chunk", "workers", "network"),
)
"""Settings that each machine may choose for itself: they change no message's meaning."""


@dataclass(frozen=True)
class RunId:
    """Which settings, and which run with them.

    A client tells by the first half whether the server means the experiment that it was started for; the second half is
    drawn once by the server, so that a second run of the same experiment is another run.  If the model has frozen
    parameters or buffers, which nobody sends, the second half ends in a digest of them.
    """

    settings: bytes  # 8
    nonce: bytes  # 8

    @classmethod
    def new(cls, settings: Settings, base: bytes = b"") -> RunId:
        """The id of a run that begins now; `base` is the digest of what its model holds beside trained parameters."""
        return cls(settings_digest(settings), secrets.token_bytes(HALF - len(base)) + base)

    @classmethod
    def read(cls, raw: bytes) -> RunId:
        """The id from its 16 bytes."""
        return cls(raw[:HALF], raw[HALF:])

    def another_base(self, base: bytes) -> str:
        """A sentence if this run's model has other frozen parameters or buffers than one with this digest."""
        theirs = self.nonce[HALF - len(base) :] if base else b""
        if theirs == base:
            return ""
        return (
            f"The frozen parameters and buffers of the model here have the digest {base.hex()}, those of the run "
            f"{theirs.hex()}; start with the same base model."
        )

    def __bytes__(self) -> bytes:
        return self.settings + self.nonce

    def __str__(self) -> str:
        return bytes(self).hex()


def read_run_id(path: Path) -> RunId:
    """The id that a server gave its run."""
    try:
        return RunId.read(bytes.fromhex(json.loads(path.read_text("utf-8"))["run"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read: {error}; put it back from a copy, or begin a new run.") from None


def settings_digest(settings: Settings) -> bytes:
    """A hash of all settings, defaults and seed included, except what is a machine's own business.

    Options of FedCEF and [privacy] that are without effect are left out: deployments that were begun before there were
    any go on.
    """
    table = tomllib.loads(settings.to_toml())
    shared = {key: value for key, value in table.items() if key not in LOCAL}
    method = shared["algorithm"]
    everyone = settings.clients_per_round in (0, settings.num_clients)
    idle = {"participation", "own_part"} if everyone or method.get("participation") == "averaged" else set()
    idle |= {"index_code"} if method.get("index_code") == "plain" else set()
    idle |= {"control"} if method.get("control") == "gradient" else set()
    idle |= {"metric", "metric_memory", "metric_floor"} if method.get("metric") == "plain" else set()
    coded = method.get("downlink", "snapshot") == "snapshot" and method.get("model_bits")
    idle |= set() if coded else {"model_bits"}
    if shared.get("privacy", {}).get("added_by") == "client":
        shared["privacy"] = {key: value for key, value in shared["privacy"].items() if key != "added_by"}
    shared["algorithm"] = {key: value for key, value in method.items() if key not in idle}
    return hashlib.sha256(json.dumps(shared, sort_keys=True, default=str).encode()).digest()[:HALF]


class Roster:
    """The clients' numbers, 0 to N-1, by the name under which the transport knows them; kept on disk.

    A number is given once: whoever comes under another name does not get it.  The file has one line per enrolment,
    `["name", number]`.  Earlier versions kept one JSON object in clients.json, which is still read.
    """

    def __init__(self, path: Path, num_clients: int, disk: Disk) -> None:
        self._path, self._num_clients, self._disk = path, num_clients, disk
        self._numbers: dict[str, int] = {}
        self._identities: dict[int, str] = {}
        self._size = 0
        self._read_object(path.with_suffix(".json"))
        self._read_lines(path)

    def number(self, identity: str) -> int | None:
        """The number of a client, or nothing if it is unknown."""
        return self._numbers.get(identity)

    def identity(self, number: int) -> str | None:
        """The name of a client, or nothing if its number is free."""
        return self._identities.get(number)

    def enroll(self, identity: str, number: int | None = None) -> int:
        """Give a client its number: the wanted one, or the lowest that is free.  Asking again changes nothing."""
        known = self._numbers.get(identity)
        if known is not None:
            if number not in (None, known):
                raise RunError(
                    f"{identity} is client {known} of this run and cannot become client {number}; correct its number, "
                    "or give it the other by `fedcef deployment clients assign`."
                )
            return known
        chosen = self._lowest_free(identity) if number is None else number
        if not self._is_free(chosen):
            raise RunError(
                f"{identity} asks to be client {chosen}, which is taken or not among 0 to {self._num_clients - 1}; an "
                "operator can give it that number by `fedcef deployment clients assign`."
            )
        line = json.dumps([identity, chosen]).encode() + b"\n"
        if self._size:
            self._disk.append(self._path, line, self._size)
        else:
            self._disk.replace(self._path, line)
        self._size += len(line)
        self._add(identity, chosen)
        return chosen

    def free(self, number: int) -> str | None:
        """Let somebody else have a number; returns who had it."""
        identity = self._identities.pop(number, None)
        if identity is not None:
            del self._numbers[identity]
            self._write()
        return identity

    def assign(self, number: int, identity: str) -> None:
        """Give a number to a client, whoever had it; the client loses another one."""
        if not 0 <= number < self._num_clients:
            raise RunError(f"There is no client {number}; this run has 0 to {self._num_clients - 1}.")
        before = self._numbers.pop(identity, None)
        if before is not None:
            del self._identities[before]
        self._numbers.pop(self._identities.get(number, ""), None)
        self._add(identity, number)
        self._write()

    def everyone(self) -> dict[int, str]:
        """All clients' names by their numbers."""
        return dict(sorted(self._identities.items()))

    def _write(self) -> None:
        """The whole list anew."""
        lines = [json.dumps([identity, number]).encode() + b"\n" for number, identity in self.everyone().items()]
        self._disk.replace(self._path, b"".join(lines))
        self._size = sum(map(len, lines))
        self._path.with_suffix(".json").unlink(missing_ok=True)

    def _lowest_free(self, identity: str) -> int:
        for number in range(self._num_clients):
            if self._is_free(number):
                return number
        raise RunError(f"All {self._num_clients} clients of this run are known; {identity} is one too many.")

    def _is_free(self, number: int) -> bool:
        return 0 <= number < self._num_clients and number not in self._identities

    def _add(self, identity: str, number: int) -> None:
        self._numbers[identity], self._identities[number] = number, identity

    # reading

    def _read_lines(self, path: Path) -> None:
        *lines, _unfinished = _bytes_of(path).split(b"\n")  # a line without an end is of an interrupted write
        for at, line in enumerate(lines, 1):
            try:
                identity, number = json.loads(line)
            except (ValueError, TypeError):
                raise _damaged(path, f"line {at} names no client") from None
            self._take(path, identity, number)
            self._size += len(line) + 1

    def _read_object(self, path: Path) -> None:
        if not (data := _bytes_of(path)):
            return
        try:
            entries = json.loads(data).items()
        except (ValueError, AttributeError):
            raise _damaged(path, "it is not a JSON object") from None
        for identity, number in entries:
            self._take(path, identity, number)

    def _take(self, path: Path, identity: Any, number: Any) -> None:
        if not (isinstance(identity, str) and type(number) is int and self._is_free(number)):
            raise _damaged(path, f"{identity!r} cannot be client {number!r}")
        if identity in self._numbers:
            raise _damaged(path, f"{identity!r} has two numbers")
        self._add(identity, number)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from None


def _damaged(path: Path, why: str) -> RunError:
    return RunError(
        f"The list of clients {path} is damaged ({why}); put it back from a copy, or delete it: clients then enrol "
        "again, and whoever first claims a number has it."
    )
