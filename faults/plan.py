"""Which fault happens when, from a seed; and which have happened, for all processes of a deployment.

Every client has a queue of faults, and so has the server.  A fault happens at the first occasion in its round or after
it, once all before it in its queue have.  That it has happened is a file, written before the fault itself, so that a
process that comes back after a kill does not meet the same fault again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

ASKED_AGAIN = ("cut order", "flip order", "cut reply", "flip reply", "double order", "double reply", "slow link")
_UNUSABLE = ("cut frame", "flip frame", "NaN in reply", "huge numbers in reply", "large norm in reply")
_OF_ANOTHER = ("reply of another run", "reply of another round", "reply as another client")
FORGED = (*_UNUSABLE, *_OF_ANOTHER)
LEFT_OUT = (*_UNUSABLE, "client's disk is full")
PAST_THE_DEADLINE = ("drop order", "drop reply", "delay reply", "client is too slow", *_OF_ANOTHER)
NODE_KILLS = (
    "kill SuperNode before its work",
    "kill SuperNode during its work",
    "kill SuperNode while it saves",
    "kill SuperNode after its work",
    "kill SuperNode between reply and acknowledgement",
    "kill ClientApp alone",
)
SERVER_KILLS = (
    *("kill server between steps", "kill server while it writes", "kill server while it recovers"),
    "kill server and SuperLink",
)
SERVER = (*SERVER_KILLS, "server's disk is full")
CLIENT = (*ASKED_AGAIN, *LEFT_OUT, *PAST_THE_DEADLINE, *NODE_KILLS)
KINDS = (*CLIENT, *SERVER)

SAVES = ("half written", "written", "synced", "renamed")
STEPS = ("before it asks", "after it asked", "before a reply", "after a reply", "before the end", "after the end")
WRITES = (
    *("append accepted.bin, half written", "append accepted.bin, written"),
    *("append round_log.bin, half written", "append round_log.bin, written"),
    *("add rounds.jsonl, half written", "replace snapshot.bin, half written", "replace snapshot.bin, synced"),
    *("replace snapshot.bin, renamed", "replace sums, half written", "replace sums, renamed"),
    *("replace accepted.bin, synced", "replace accepted.bin, renamed", "replace round_log.bin, synced"),
    "replace round_log.bin, renamed",
)


@dataclass(frozen=True)
class Event:
    id: int
    kind: str
    round: int  # not before this one
    client: int | None  # None: the server
    point: str = ""  # where exactly

    def random(self, seed: int) -> np.random.Generator:
        """What the fault itself draws."""
        return np.random.default_rng([seed, self.id + 1])


class _Bag:
    """Draws from a set in random order, all before any comes again."""

    def __init__(self, things: Sequence[str], random: np.random.Generator) -> None:
        self._things, self._random, self._left = list(things), random, []

    def draw(self) -> str:
        if not self._left:
            self._left = [self._things[i] for i in self._random.permutation(len(self._things))]
        return self._left.pop()


def make_plan(seed: int, rounds: int, clients: int) -> list[Event]:
    """Faults for all rounds but the first, in which the server learns what is usual, and the last two, which are for
    those that are late.

    In a round a client meets up to two faults after which it is asked again, or that do not matter; all clients but one
    also meet one that may cost them the round.  Those that make a round last until its deadline are put together.
    """
    random = np.random.default_rng(seed)
    again = _Bag(ASKED_AGAIN, random)
    themes = [_Bag(kinds, random) for kinds in (NODE_KILLS, LEFT_OUT, PAST_THE_DEADLINE)]
    saves = _Bag(SAVES, random)
    drawn: list[tuple[str, int, int | None, str]] = []
    for round_ in range(1, rounds - 2):
        spared = int(random.integers(clients))
        for client in range(clients):
            kinds = [again.draw() for _ in range(random.choice([0, 1, 1, 2]))]
            if client != spared:
                kinds.append(themes[round_ % len(themes)].draw())
            drawn += [(kind, round_, client, saves.draw() if "saves" in kind else "") for kind in kinds]
    drawn += _server(random, rounds - 2)
    return [Event(i, *fields) for i, fields in enumerate(drawn)]


def _server(random: np.random.Generator, rounds: int) -> list[tuple[str, int, int | None, str]]:
    """Every step once, in random order and spread over the rounds; in a short run some."""
    points = [("kill server between steps", point) for point in STEPS]
    points += [("kill server while it writes", point) for point in WRITES]
    points += [
        ("kill server and SuperLink", point) for point in (*random.choice(STEPS, 3), *random.choice(WRITES[:5], 2))
    ]
    points += [("server's disk is full", WRITES[i]) for i in (0, 2)]
    points = [points[i] for i in random.permutation(len(points))[:rounds]]
    points = list(chain.from_iterable(_then_recovering(*point) for point in points))
    first = max(rounds // 12, 1)  # a run that is young has nothing to lose
    at = np.linspace(min(first, rounds - 1), rounds - 1, len(points)).astype(int)
    return [
        (kind, 0 if "recovers" in kind else int(round_), None, str(point))
        for (kind, point), round_ in zip(points, at, strict=True)
    ]


def _then_recovering(kind: str, point: str) -> list[tuple[str, str]]:
    """Where recovery has something to write, or to do, kill it there too."""
    recovering = {
        "append round_log.bin, written": "replace rounds.jsonl, half written",
        "after a reply": "when it has recovered",
    }
    then = recovering.get(point) if kind in ("kill server while it writes", "kill server between steps") else None
    return [(kind, point), *([("kill server while it recovers", then)] if then else [])]


class Plan:
    """The plan and what has happened of it, in a folder that all processes of a deployment see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        given = json.loads((folder / "plan.json").read_text("utf-8"))
        self.seed: int = given["seed"]
        self.deadline_s: float = given["deadline_s"]
        self.events = [Event(**fields) for fields in given["events"]]
        self.clients = 1 + max((e.client for e in self.events if e.client is not None), default=0)

    @classmethod
    def write(cls, folder: Path, seed: int, deadline_s: float, events: Sequence[Event]) -> Plan:
        (folder / "fired").mkdir(parents=True)
        given = {"seed": seed, "deadline_s": deadline_s, "events": [asdict(event) for event in events]}
        (folder / "plan.json").write_text(json.dumps(given))
        return cls(folder)

    @classmethod
    def of_this_process(cls) -> Plan:
        return cls(Path(os.environ["FEDCEF_FAULTS"]))

    def next(self, client: int | None, round_: int) -> Event | None:
        """The next fault of a client (None: of the server), if it is due."""
        queue = (event for event in self.events if event.client == client and not self._file(event).exists())
        event = next(queue, None)
        if event is None or event.round > round_:
            return None
        return event if event.kind != "large norm in reply" or self._median.exists() else None

    def announce(self, run_id: int, round_: int) -> None:
        """Tell that replies to orders of this round, and of this run of Flower's, are waited for from now on."""
        part = self.folder / "open.part"
        part.write_text(f"{run_id} {round_}")
        part.replace(self._open)

    def is_open(self, run_id: int, round_: int) -> bool:
        """Whether anybody waits for the reply to an order; otherwise a fault would be wasted on it."""
        return self._open.exists() and self._open.read_text() == f"{run_id} {round_}"

    def usual_size_is_known(self) -> None:
        """A large norm can be told from a usual one from now on; before, it would be let in."""
        self._median.touch()

    def claim(self, event: Event, round_: int) -> bool:
        """Let a fault happen, now; False if another process was faster."""
        try:
            with self._file(event).open("x") as file:
                json.dump({"round": round_, "time": time.time()}, file)
        except FileExistsError:
            return False
        return True

    def happened(self) -> dict[Event, dict[str, Any]]:
        """The faults so far, and in which round each came."""
        return {e: json.loads(self._file(e).read_text() or "{}") for e in self.events if self._file(e).exists()}

    @property
    def _median(self) -> Path:
        return self.folder / "median"

    @property
    def _open(self) -> Path:
        return self.folder / "open"

    def _file(self, event: Event) -> Path:
        return self.folder / "fired" / str(event.id)
