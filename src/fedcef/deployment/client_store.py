"""A client's own state on its own disk: what the server is known to have, and what it may have.

    committed   the state after the last message that the server accepted
    pending     the state that will be committed if the server accepted the last message that was sent
    replica     as far as this client has followed the log
    reply       the last message, to be sent again if it is asked for again

One save writes all four, whole, into the older of two slots.  So a kill at any moment leaves the last save or the one
before it, and if the last one is damaged later, the one before it often still does.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import State
from fedcef.core.disk import Disk, PrivateDisk
from fedcef.core.errors import RunError
from fedcef.deployment.identity import RunId
from fedcef.deployment.messages import Stamp
from fedcef.wire.checkpoint import DamagedError, read_checkpoint, read_header, write_checkpoint

_PARTS = ("replica", "committed", "pending")


@dataclass(frozen=True, eq=False)
class ClientState:
    """What one save holds."""

    round: int  # rounds that the replica has seen; the last message is of this round
    replica: State
    base: Stamp | None  # of `committed`
    committed: State
    stamp: Stamp  # of `pending`
    pending: State
    reply: bytes


class ClientStore:
    """The states of one client, by run: an order of an old run that comes late does not touch the new one's."""

    def __init__(self, folder: Path, client: int, disk: Disk | None = None) -> None:
        self.folder, self.client = folder, client
        self.damaged: list[str] = []
        """What was wrong with slots that could not be used, for whoever reports it."""
        self.disk = disk or PrivateDisk()
        self._last: dict[str, tuple[int, ClientState]] = {}  # the newest state of a run, by number of the save

    def load(self, run: RunId) -> ClientState | None:
        """The newest valid state of a run."""
        if str(run) not in self._last:
            self.disk.keep_names(self.folder)  # what is found may be told to the server
            paths = sorted((self._slot(run, slot) for slot in (0, 1)), key=self._number, reverse=True)
            found = next((save for path in paths if (save := self._read(str(run), path)) is not None), None)
            if found is None:
                return None
            self._last[str(run)] = found
        return self._last[str(run)][1]

    def with_stamp(self, stamp: Stamp) -> ClientState | None:
        """A state that has led to this stamp, of whatever run: a run's id changes when its server goes back or it gets
        more rounds, and the stamp tells that the messages are the same."""
        for path in sorted(self.folder.glob("*.state")):
            try:
                known = [read_header(path).get(name) for name in ("stamp", "base")]
            except (DamagedError, OSError):
                continue
            if stamp.to_json() in known and (save := self._read(path.stem.rpartition("-")[0], path)) is not None:
                return save[1]
        return None

    def forget(self) -> None:
        """Read the disk next time: another process may have worked for this client."""
        self._last = {}

    def save(self, run: RunId, state: ClientState) -> None:
        """Make a state durable; if that fails, the last one is still there."""
        before = self._last.get(str(run))
        number = before[0] + 1 if before else 0
        header = {
            "run": str(run),
            "client": self.client,
            "save": number,
            "round": state.round,
            "base": None if state.base is None else state.base.to_json(),
            "stamp": state.stamp.to_json(),
        }
        tensors = {f"{part}/{name}": v for part in _PARTS for name, v in getattr(state, part).items()}
        reply = torch.frombuffer(bytearray(state.reply), dtype=torch.uint8)
        write_checkpoint(self._slot(run, number % 2), header, {**tensors, "reply": reply}, self.disk)
        self._last = {str(run): (number, state)}

    def other_runs(self, run: RunId) -> bool:
        """Whether there are states of other runs."""
        return any(not path.name.startswith(str(run)) for path in self.folder.glob("*.state"))

    def _slot(self, run: RunId, slot: int) -> Path:
        return self.folder / f"{run}-{slot}.state"

    def _number(self, path: Path) -> int:
        """Of the save in a slot; -1 for none.  What cannot be read comes first, and is told."""
        try:
            return int(read_header(path)["save"]) if path.exists() else -1
        except (DamagedError, OSError):
            return sys.maxsize

    def _read(self, run: str, path: Path) -> tuple[int, ClientState] | None:
        if not path.exists():
            return None
        try:
            header, tensors = read_checkpoint(path)
            if header["run"] != run or header["client"] != self.client:
                raise DamagedError(f"{path} is the state of client {header['client']} of run {header['run']}.")
            state = ClientState(
                round=header["round"],
                replica=_part("replica", tensors),
                base=None if header["base"] is None else Stamp.from_json(header["base"]),
                committed=_part("committed", tensors),
                stamp=Stamp.from_json(header["stamp"]),
                pending=_part("pending", tensors),
                reply=bytes(tensors["reply"].numpy()),
            )
        except RunError as error:
            self.damaged.append(str(error))
            return None
        except KeyError as error:
            self.damaged.append(f"{path} is no state of a client: it has no {error}.")
            return None
        return header["save"], state


def _part(part: str, tensors: dict[str, Tensor]) -> State:
    prefix = f"{part}/"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
