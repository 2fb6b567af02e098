"""A run folder as data: `config.toml`, `rounds.jsonl`, `facts.json` and, once the run has ended, `summary.json`."""

import csv
import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcef.core.errors import RunError

Column = NDArray[np.float64]

ALWAYS = ("round", "wire_up_bytes", "wire_down_bytes", "paper_up_bytes", "paper_down_bytes", "wall_s")
LABEL_LENGTH = 80


@dataclass(frozen=True, eq=False)
class RunRecord:
    folder: Path
    label: str
    rounds: dict[str, Column]  # one entry per column of rounds.jsonl, NaN where a line has none
    summary: dict[str, Any]  # empty while the run is unfinished
    config: dict[str, Any]
    config_text: str
    facts: dict[str, Any] = field(default_factory=dict)  # empty in folders of before there were facts

    @property
    def status(self) -> str:
        """finished, diverged or unfinished."""
        status = self.summary.get("status", "unfinished")
        return status if status in ("finished", "diverged") else "unfinished"

    @property
    def seed(self) -> int | None:
        seed = self.summary.get("seed", self.config.get("seed"))
        return seed if isinstance(seed, int) else None

    @property
    def dataset(self) -> str:
        data = self.config.get("data")
        name = self.summary.get("dataset") or (data.get("name") if isinstance(data, dict) else None)
        return one_line(str(name)) if name else ""

    @property
    def last_round(self) -> int:
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
        value = number(self.summary.get(name))
        if math.isfinite(value):
            return value
        column = self.rounds.get(name, np.empty(0))
        known = column[np.isfinite(column)]
        return float(known[-1]) if known.size else math.nan


def find_runs(path: Path) -> list[Path]:
    """The run folders in a folder: itself, those right below it, or those of a sweep over several experiments.

    They come in the order of its summary.csv, which is that of the experiment, and otherwise by name.
    """
    for pattern in ("config.toml", "*/config.toml", "*/*/config.toml"):
        if found := sorted(config.parent for config in path.glob(pattern)):
            order = _order(path)
            return sorted(found, key=lambda folder: order.get(folder, len(order)))
    return []


def _order(path: Path) -> dict[Path, int]:
    """The places of run folders in the summary that `compare` or `sweep` wrote."""
    try:
        with (path / "summary.csv").open(encoding="utf-8", newline="") as file:
            return {path / row["folder"]: place for place, row in enumerate(csv.DictReader(file))}
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return {}


def load_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """Reads run folders, in the order given."""
    if not folders:
        raise RunError("There is nothing to report: give at least one run folder.")
    return [_load(Path(folder)) for folder in folders]


def number(value: object) -> float:
    """`value` as a float; NaN for everything that is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:  # an integer beyond the floats
        return math.nan


def one_line(text: str) -> str:
    """Text from a file as one printable line: no control characters (terminals obey them), bounded length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= LABEL_LENGTH else line[: LABEL_LENGTH - 1] + "…"


def _load(folder: Path) -> RunRecord:
    if not (folder / "rounds.jsonl").is_file():
        raise RunError(f"{folder} holds no run (it has no rounds.jsonl): give a folder that 'fedcef run' has written.")
    try:
        rounds = _columns(_lines(folder / "rounds.jsonl"))
        text = _text(folder / "config.toml")
        config = tomllib.loads(text)
        summary = json.loads(_text(folder / "summary.json") or "{}")
        facts = json.loads(_text(folder / "facts.json") or "{}")
    except (OSError, ValueError) as error:  # JSON, TOML and UTF-8 errors are ValueErrors
        raise RunError(f"The run in {folder} cannot be read: {error}.") from error
    for name, content in (("summary.json", summary), ("facts.json", facts)):
        if not isinstance(content, dict):
            raise RunError(f"The run in {folder} cannot be read: {name} is not a JSON object.")
    return RunRecord(folder, _label(folder, summary, config), rounds, summary, config, text, facts)


def _label(folder: Path, summary: dict[str, Any], config: dict[str, Any]) -> str:
    algorithm = config.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, dict) else None
    for candidate in (summary.get("label"), config.get("label"), name, summary.get("algorithm")):
        if candidate and (label := one_line(str(candidate))):
            return label
    return one_line(folder.resolve().name)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one per line; a last line cut short by a killed run is left out."""
    raw = path.read_bytes().splitlines()
    lines: list[dict[str, Any]] = []
    for i, line in enumerate(raw):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict) or not math.isfinite(number(entry.get("round"))):
                raise ValueError("no object with a round number")
        except ValueError as error:
            if i == len(raw) - 1:
                break
            raise ValueError(f"line {i + 1} of rounds.jsonl is damaged ({error})") from error
        lines.append(entry)
    if not lines:
        raise ValueError("rounds.jsonl has no complete line")
    return lines


def _columns(lines: list[dict[str, Any]]) -> dict[str, Column]:
    """Lines as columns, by round; of a round recorded twice (a resumed run) the later line counts."""
    by_round = {number(line["round"]): line for line in lines}
    ordered = [by_round[key] for key in sorted(by_round)]
    names = dict.fromkeys([*ALWAYS, *(name for line in ordered for name in line)])
    columns = {name: np.array([number(line.get(name)) for line in ordered]) for name in names}
    for count in ("wire", "paper"):
        columns[f"{count}_bytes"] = columns[f"{count}_up_bytes"] + columns[f"{count}_down_bytes"]
    return columns
