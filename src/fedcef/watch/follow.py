"""A run folder that is followed while it grows."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Literal, Protocol

from fedcef.core.errors import RunError
from fedcef.report.data.records import as_number
from fedcef.runs.lock import is_locked
from fedcef.runs.reader import Record, RunReader, find_runs
from fedcef.watch.lines import Lines

Status = Literal["waiting", "running", "stopped", "finished", "diverged"]
SILENT_S = 10.0  # before that nobody asks whether a run is still alive
RECENT = 30  # rounds that the pace is taken over
KEPT = 20  # notes


class Listener(Protocol):
    """Hears of a run's rounds while it is followed, and of its end."""

    def record(self, record: Record) -> None:
        """A round that was recorded."""

    def finish(self, *, over: bool) -> None:
        """The last call; `over` unless the run may go on."""


class Followed:
    """One run: its records so far, its notes, and how fast it goes."""

    def __init__(self, path: Path, listener: Listener | None = None) -> None:
        self.path = path
        reader = RunReader(path)
        self.config = reader.settings
        self.records: list[Record] = []
        self.notes = [sentence for sentence in reader.damage if "config.toml" in sentence]
        self.summary: Record = {}
        self.read = 0  # lines of rounds.jsonl, those of before a resume too
        self._listener = listener
        self._rounds = Lines(path / "rounds.jsonl")
        self._notes = {name: Lines(path / name) for name in ("notes.jsonl", "refused.jsonl")}

    def update(self) -> None:
        """Read what is new.  The summary is looked for first: once it is there, all rounds are."""
        self.summary = self.summary or RunReader(self.path).summary
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
        """How it stands."""
        if self.summary:
            return "diverged" if self.summary.get("status") == "diverged" else "finished"
        if self.changed and self.silence > SILENT_S and not is_locked(self.path / "lock"):
            return "stopped"  # whoever works on a run holds its lock, and the system takes it from the dead
        return "running" if self.records else "waiting"

    @property
    def silence(self) -> float:
        """Seconds since something was last written down."""
        return time.time() - self.changed

    @property
    def over(self) -> bool:
        """Whether it has ended, by its summary."""
        return bool(self.summary)

    @property
    def label(self) -> str:
        """What the run is called."""
        return str(self.config.get("label") or self.config.get("name") or self.path.resolve().name)

    @property
    def round(self) -> int:
        """The last one."""
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
        return [value for record in self.records if math.isfinite(value := as_number(record.get(name)))]

    def last(self, name: str) -> float | None:
        """The last finite value of a measure; None where there is none."""
        return next(reversed(self.column(name)), None)

    @property
    def pace(self) -> float | None:
        """Rounds per second: of the last ones while it runs, of all once it is over."""
        if not self.records:
            return None
        first, last = self.records[0 if self.over else -RECENT - 1 :][0], self.records[-1]
        taken = as_number(last.get("wall_s")) - as_number(first.get("wall_s"))
        return (last["round"] - first["round"]) / taken if taken > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds to the end, at this pace."""
        return (self.rounds - self.round) / self.pace if self.pace and self.status == "running" else None

    @property
    def changed(self) -> float:
        """When something was last written down, in seconds since 1970."""
        return max(modified(self.path / name) for name in ("rounds.jsonl", "summary.json"))

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
