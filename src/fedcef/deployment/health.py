"""How a deployed run stands, for whoever looks after it: from its folder alone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedcef.core.errors import RunError
from fedcef.runs.folder import RunFolder
from fedcef.runs.kinds import refuse_simulated
from fedcef.runs.lock import is_locked
from fedcef.runs.reader import RunReader

State = Literal["running", "silent", "stopped", "finished", "diverged"]
"""A server works on it; one does, but nothing came for long; none does; all rounds are over; it has diverged."""
SLACK_S = 60.0
"""Beyond a round's deadline, before a run is called silent."""


@dataclass(frozen=True)
class Health:
    """How a run stands."""

    state: State
    round: int
    rounds: int
    silence_s: float
    """Since something was last written down."""
    why: str = ""
    """What the server said when it stopped; nothing if it was killed."""

    @property
    def is_good(self) -> bool:
        """Whether nobody need do anything."""
        return self.state in ("running", "finished")

    @property
    def sentence(self) -> str:
        """In words."""
        over = f"{self.state}: {self.round} of {self.rounds} rounds are over"
        return f"{over}; the last news is {self.silence_s:.0f} s old." + (f"  {self.why}" if self.why else "")


def health_of(path: Path) -> Health:
    """Look at the folder of a deployment's server."""
    if not RunFolder(path).config.is_file():
        raise RunError(f"{path} holds no run; give the folder of a deployment's server.")
    refuse_simulated(path)
    reader = RunReader(path)
    settings = reader.settings
    silence = max(0.0, time.time() - max((_written(path / name) for name in ("rounds.jsonl", "lock")), default=0.0))
    patience = float(settings.get("deployment", {}).get("deadline_s", 600.0)) + SLACK_S
    state: State = "running" if silence <= patience else "silent"
    if reader.status != "unfinished":
        state = reader.status
    elif not is_locked(path / "lock"):
        state = "stopped"
    over = max((record["round"] for record in reader.records), default=0)
    why = _last_words(reader) if state == "stopped" else ""
    return Health(state, over, int(settings.get("rounds", over)), silence, why)


def _last_words(reader: RunReader) -> str:
    """What the last server said at its end; nothing if another has begun since, which was killed."""
    began = max(_written(reader.path / name) for name in ("rounds.jsonl", "lock"))
    notes = reader.notes if _written(reader.path / "notes.jsonl") >= began else []
    return str(notes[-1].get("note", "")) if notes else ""


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
