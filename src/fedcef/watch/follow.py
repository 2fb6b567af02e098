"""A run folder that is followed while it grows."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any, Literal, Protocol

from fedcef.core.errors import RunError
from fedcef.report import find_runs
from fedcef.report.data.records import number
from fedcef.runs.folder import Record, RunFolder
from fedcef.watch.lines import Lines

Status = Literal["waiting", "running", "finished", "diverged"]
RECENT = 30  # rounds that the pace is taken over
KEPT = 20  # notes


class Listener(Protocol):
    """Hears of a run's rounds while it is followed, and of its end."""

    def record(self, record: Record) -> None: ...

    def finish(self, *, over: bool) -> None: ...


class Followed:
    """One run: its records so far, its notes, and how fast it goes."""

    def __init__(self, path: Path, listener: Listener | None = None) -> None:
        self.folder = RunFolder(path)
        self.config = _table(self.folder.config)
        self.records: list[Record] = []
        self.notes: list[str] = []
        self.summary: Record = {}
        self.read = 0  # lines of rounds.jsonl, those of before a resume too
        self._listener = listener
        self._rounds = Lines(self.folder.rounds)
        self._notes = {name: Lines(path / name) for name in ("notes.jsonl", "refused.jsonl")}

    def update(self) -> None:
        """Read what is new.  The summary is looked for first: once it is there, all rounds are."""
        self.summary = self.summary or _json(self.folder.summary)
        again, records = self._rounds.new()
        if again:
            self.records = []
        for record in records:
            self.read += 1
            if isinstance(record.get("round"), int):
                self.records.append(record)
                if self._listener:
                    self._listener.record(record)
        for lines in self._notes.values():
            self.notes = list(dict.fromkeys([*self.notes, *map(_note, lines.new()[1])]))[-KEPT:]

    def close(self) -> None:
        """Follow it no more."""
        if self._listener:
            self._listener.finish(over=self.over)

    @property
    def status(self) -> Status:
        if self.summary:
            return "diverged" if self.summary.get("status") == "diverged" else "finished"
        return "running" if self.records else "waiting"

    @property
    def over(self) -> bool:
        return bool(self.summary)

    @property
    def label(self) -> str:
        return str(self.config.get("label") or self.config.get("name") or self.folder.path.resolve().name)

    @property
    def round(self) -> int:
        return int(self.records[-1]["round"]) if self.records else 0

    @property
    def rounds(self) -> int:
        """How many were asked for."""
        planned = self.config.get("rounds")
        return planned if isinstance(planned, int) and planned > 0 else max(self.round, 1)

    @property
    def names(self) -> list[str]:
        """Everything that is measured, in the order of the records."""
        return list(dict.fromkeys(name for record in self.records for name in record))

    def column(self, name: str) -> list[float]:
        """The finite values of a measure so far."""
        return [value for record in self.records if math.isfinite(value := number(record.get(name)))]

    def last(self, name: str) -> float | None:
        return next(reversed(self.column(name)), None)

    @property
    def pace(self) -> float | None:
        """Rounds per second: of the last ones while it runs, of all once it is over."""
        if not self.records:
            return None
        first, last = self.records[0 if self.over else -RECENT - 1 :][0], self.records[-1]
        taken = number(last.get("wall_s")) - number(first.get("wall_s"))
        return (last["round"] - first["round"]) / taken if taken > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds to the end, at this pace."""
        return (self.rounds - self.round) / self.pace if self.pace and not self.over else None

    @property
    def changed(self) -> float:
        """When something was last written down, in seconds since 1970."""
        return max(modified(self.folder.rounds), modified(self.folder.summary))

    @property
    def version(self) -> tuple[int, bool]:
        """Other values mean that there is more to show."""
        return self.read, self.over


def modified(path: Path) -> float:
    """When a file was last written; 0 if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def find_followed(path: Path) -> list[Path]:
    """The run folders at a path; a path without one is told."""
    if found := find_runs(path):
        return found
    what = "holds no run yet" if path.is_dir() else "is not there yet"
    raise RunError(f"{path} {what}; start one with `fedcef run EXPERIMENT --out {path}`, then watch it.")


def _note(entry: Record) -> str:
    """A sentence of the run's own, or about a reply that a server did not take."""
    if "note" in entry:
        return str(entry["note"])
    who = f"client {entry['client']}" if entry.get("client") is not None else str(entry.get("identity") or "someone")
    return f"Round {entry.get('round')}: the reply of {who} was refused ({entry.get('reason')})."


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None


def _json(path: Path) -> Record:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
