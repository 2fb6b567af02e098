"""A run folder as the report sees it: columns of numbers by round, and what the other files say."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcef.core.errors import RunError
from fedcef.runs.reader import RunReader

Column = NDArray[np.float64]

ALWAYS = ("round", "wire_up_bytes", "wire_down_bytes", "paper_up_bytes", "paper_down_bytes", "wall_s")
LABEL_LENGTH = 80


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run."""

    folder: Path
    label: str
    rounds: dict[str, Column]  # one entry per column of rounds.jsonl, NaN where a line has none
    summary: dict[str, Any]  # empty while the run is unfinished
    config: dict[str, Any]
    config_text: str
    facts: dict[str, Any] = field(default_factory=dict)  # empty in folders of before there were facts
    damage: tuple[str, ...] = ()  # sentences on what of the folder could not be read

    @property
    def status(self) -> str:
        """finished, diverged or unfinished."""
        status = self.summary.get("status", "unfinished")
        return status if status in ("finished", "diverged") else "unfinished"

    @property
    def seed(self) -> int | None:
        """The run's seed, where it is known."""
        seed = self.summary.get("seed", self.config.get("seed"))
        return seed if isinstance(seed, int) else None

    def section(self, name: str) -> dict[str, Any]:
        """A table of its settings, empty where the file has none by this name."""
        section = self.config.get(name)
        return section if isinstance(section, dict) else {}

    @property
    def dataset(self) -> str:
        """The name of its data; "" where it is not known."""
        name = self.summary.get("dataset") or self.section("data").get("name")
        return as_line(str(name)) if name else ""

    @property
    def experiment(self) -> str:
        """The name of its experiment; "" where it is not known."""
        name = self.config.get("name")
        return as_line(name) if isinstance(name, str) else ""

    @property
    def written(self) -> date | None:
        """The day on which the run was last written to, by its files; None where they are gone."""
        files = (self.folder / name for name in ("summary.json", "rounds.jsonl"))
        return next((date.fromtimestamp(path.stat().st_mtime) for path in files if path.is_file()), None)

    @property
    def last_round(self) -> int:
        """The last round that is recorded."""
        return int(self.rounds["round"][-1])

    @property
    def planned_rounds(self) -> int:
        """The rounds that were asked for; those that were run where the config does not say."""
        planned = self.config.get("rounds", self.last_round)
        return planned if isinstance(planned, int) else self.last_round

    @property
    def participants(self) -> int | None:
        """The clients that take part in a round, where the config says."""
        counts = [self.config.get(key) for key in ("clients_per_round", "num_clients")]
        return next((n for n in counts if isinstance(n, int) and n > 0), None)

    def last(self, name: str) -> float:
        """The last recorded value of a column; NaN where there is none."""
        value = as_number(self.summary.get(name))
        if math.isfinite(value):
            return value
        column = self.rounds.get(name, np.empty(0))
        known = column[np.isfinite(column)]
        return float(known[-1]) if known.size else math.nan


def load_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """Reads run folders, in the order given."""
    if not folders:
        raise RunError("There is nothing to report: give at least one run folder.")
    return [_load(Path(folder)) for folder in folders]


def as_number(value: object) -> float:
    """`value` as a float; NaN for everything that is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:  # an integer beyond the floats
        return math.nan


def as_line(text: str) -> str:
    """Text from a file as one printable line: no control characters (terminals obey them), bounded length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= LABEL_LENGTH else line[: LABEL_LENGTH - 1] + "…"


def _load(folder: Path) -> RunRecord:
    run = RunReader(folder)
    if not (folder / "rounds.jsonl").is_file():
        raise RunError(f"{folder} holds no run (it has no rounds.jsonl): give a folder that 'fedcef run' has written.")
    if not run.records:
        raise RunError(f"The run in {folder} cannot be read: rounds.jsonl has no complete line.")
    return RunRecord(
        folder=folder,
        label=_label(run),
        rounds=_columns(run.records),
        summary=run.summary,
        config=run.settings,
        config_text=run.settings_text,
        facts=run.facts,
        damage=run.damage,
    )


def _label(run: RunReader) -> str:
    algorithm = run.settings.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, dict) else None
    for candidate in (run.summary.get("label"), run.settings.get("label"), name, run.summary.get("algorithm")):
        if candidate and (label := as_line(str(candidate))):
            return label
    return as_line(run.path.resolve().name)


def _columns(lines: list[dict[str, Any]]) -> dict[str, Column]:
    """Lines as columns, by round; of a round recorded twice (a resumed run) the later line counts."""
    by_round = {as_number(line["round"]): line for line in lines}
    ordered = [by_round[key] for key in sorted(by_round)]
    names = dict.fromkeys([*ALWAYS, *(name for line in ordered for name in line)])
    columns = {name: np.array([as_number(line.get(name)) for line in ordered]) for name in names}
    for count in ("wire", "paper"):
        columns[f"{count}_bytes"] = columns[f"{count}_up_bytes"] + columns[f"{count}_down_bytes"]
    return columns
