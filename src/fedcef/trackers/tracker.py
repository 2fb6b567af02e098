"""What a tracker is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fedcef.report.data.records import as_number
from fedcef.runs.reader import flatten


class Tracker(Protocol):
    """Follows one run.  It may raise: the run goes on without it."""

    def start(self, config: Mapping[str, Any], folder: Path) -> None:
        """Begin with a run, or go on with one that was tracked before; `config` is what its config.toml says."""

    def record(self, record: Mapping[str, Any]) -> None:
        """A line of rounds.jsonl; rounds come in order, each once."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """The last call.  `summary` is what summary.json says; it is empty if the run may still go on."""


def pick_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a record or summary, by name."""
    return {name: value for name, given in values.items() if math.isfinite(value := as_number(given))}


def pick_final(summary: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, float]:
    """What a summary says that the last record and the settings do not, such as a spent ε."""
    known = {*record, "rounds", "seed"}
    return {name: value for name, value in pick_numbers(summary).items() if name not in known}


def flatten_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the names that --set gives them: compressor.ratio and so on.  Those of other runs are left out."""
    return flatten({name: value for name, value in config.items() if name not in ("compare", "reference")})


def title_of(config: Mapping[str, Any], folder: Path) -> str:
    """What a run is called."""
    return str(config.get("label") or folder.resolve().name)
