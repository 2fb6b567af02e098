"""The clients of a deployed run by its records: who is there, who is late, what was refused, and how long it took."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fedcef.report.data.records import as_number
from fedcef.runs.kinds import is_deployed
from fedcef.runs.lock import is_locked
from fedcef.watch.follow import Followed


@dataclass(frozen=True)
class Attended:
    """One client."""

    client: int
    name: str
    """Under which the server knows it; empty if it has not come yet."""
    took_part: int
    """In so many rounds."""
    last_round: int | None
    """The last one that the server has of it."""
    missed: int
    """So many times in a row it was asked and its reply was not in the round."""

    @property
    def state(self) -> str:
        """In a word or two."""
        if self.missed:
            return f"missed {self.missed}"
        return "not seen" if self.last_round is None else "there"


def is_deployment(run: Followed) -> bool:
    """Whether a run is a deployment's."""
    return is_deployed(run.path)


def is_alive(run: Followed) -> bool:
    """Whether a server works on it."""
    return is_locked(run.path / "lock")


def attended(run: Followed) -> list[Attended]:
    """All clients, in the order of their numbers."""
    took_part: Counter[int] = Counter()
    missed: Counter[int] = Counter()
    last: dict[int, int] = {}
    for record in run.records:
        clients, absent = _numbers(record.get("clients")), _numbers(record.get("missed"))
        took_part.update(clients)
        missed.update(absent)
        for client in clients:
            missed[client], last[client] = 0, record["round"] - 1
    planned = run.config.get("num_clients")
    names = _names(run)
    everyone = range(planned) if isinstance(planned, int) else sorted({*took_part, *missed, *names})
    return [Attended(c, names.get(c, ""), took_part[c], last.get(c), missed[c]) for c in everyone]


def reasons(run: Followed) -> dict[str, int]:
    """How many replies were refused so far, by reason."""
    found: Counter[str] = Counter()
    for record in run.records:
        counted = record.get("reasons")
        found.update(
            {str(reason): int(count) for reason, count in counted.items()} if isinstance(counted, dict) else {}
        )
    return dict(found.most_common())


def seconds(run: Followed) -> dict[str, float]:
    """Of the last round: all of it, and what the slowest client worked; the rest is waiting and the network."""
    walls = run.column("wall_s")
    whole = walls[-1] - walls[-2] if len(walls) > 1 else 0.0
    return {"round": whole, "work": as_number(run.records[-1].get("work_s", 0.0)) if run.records else 0.0}


def _numbers(found: object) -> list[int]:
    return [client for client in found if type(client) is int] if isinstance(found, list) else []


def _names(run: Followed) -> dict[int, str]:
    return {number: name for name, number in _enrolments(run)}


def _enrolments(run: Followed) -> Iterator[tuple[str, int]]:
    """The lines of clients.jsonl, which are lists and not objects."""
    try:
        lines = (run.path / "clients.jsonl").read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            name, number = json.loads(line)
        except (ValueError, TypeError):
            continue
        if isinstance(name, str) and type(number) is int:
            yield name, number
