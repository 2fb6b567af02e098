"""What is in a run folder: the one reader for all who want to know.

    run = RunReader(path)
    run.records, run.settings, run.summary, run.facts, run.notes
    run.damage          # sentences on what could not be read; empty for a folder that is whole

Nothing here raises because of a damaged file.  What is intact is there, a file that is missing or damaged is empty, a
damaged line is left out, and `damage` names each of them, so that a bad byte in one file does not hide the others.
Only the model is all or nothing: `run.model()` raises where it is damaged.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Record = dict[str, Any]
"""A line of rounds.jsonl, or another JSON object of a run folder."""

Status = Literal["unfinished", "finished", "diverged"]

_LARGEST_ROUND = 2**53  # that a float holds exactly, as figures need

_T = TypeVar("_T")


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


@dataclass(frozen=True)
class Line:
    """A line of a file of JSON objects; `entry` is None where it is damaged."""

    number: int
    text: bytes
    entry: Record | None


def json_lines(content: bytes) -> list[Line]:
    """The lines of such a file.  Blank lines are no lines, nor is a last one that has no end yet and cannot be read:
    it is being written, or a kill cut it short."""
    lines = []
    for number, text in enumerate(content.splitlines(keepends=True), start=1):
        entry = _object(text)
        if text.strip() and (entry is not None or text.endswith((b"\n", b"\r"))):
            lines.append(Line(number, text, entry))
    return lines


def record_lines(content: bytes) -> list[Line]:
    """The lines of rounds.jsonl; one without the number of a round is damaged, or unfinished if it is the last."""
    lines = [line if _is_record(line.entry) else Line(line.number, line.text, None) for line in json_lines(content)]
    torn = bool(lines) and lines[-1].entry is None and not lines[-1].text.endswith((b"\n", b"\r"))
    return lines[:-1] if torn else lines


def counted(noun: str, numbers: list[int]) -> str:
    """Numbers of lines or rounds in few words: rounds 3, 5 to 9."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    said = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans)
    return f"{noun}{'s' if len(numbers) > 1 else ''} {said}"


def _object(text: bytes) -> Record | None:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):  # JSON and UTF-8 errors are ValueErrors
        return None
    return entry if isinstance(entry, dict) else None


def _is_record(entry: Record | None) -> bool:
    round_ = (entry or {}).get("round")
    return type(round_) is int and 0 <= round_ < _LARGEST_ROUND


def flatten(table: Mapping[str, Any], prefix: str = "") -> Record:
    """A nested table by dotted names, as `--set` takes them: compressor.ratio and so on."""
    flat: Record = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


@dataclass(frozen=True)
class RunReader:
    """The files of a run folder as data, each read when it is first asked for and then kept.

    Args:
        path: the run folder; one that does not exist reads as an empty one.
    """

    path: Path

    @property
    def settings_text(self) -> str:
        """config.toml as it stands there."""
        return self._settings[0]

    @property
    def settings(self) -> Record:
        """config.toml as a table."""
        return self._settings[1]

    @property
    def records(self) -> list[Record]:
        """The intact lines of rounds.jsonl, in their order; a round that was recorded twice is there twice."""
        return self._records[0]

    @property
    def summary(self) -> Record:
        """summary.json; empty until the run has ended."""
        return self._summary[0]

    @property
    def facts(self) -> Record:
        """facts.json: what only the report asks for."""
        return self._facts[0]

    @property
    def notes(self) -> list[Record]:
        """The intact lines of notes.jsonl: a round and a sentence each."""
        return self._notes[0]

    @property
    def status(self) -> Status:
        """How the run ended, by its summary; unfinished where there is none."""
        status = self.summary.get("status")
        return status if status in ("finished", "diverged") else "unfinished"

    @property
    def damage(self) -> tuple[str, ...]:
        """A sentence on each file, or line of one, that could not be read."""
        parts = (self._settings[2], self._records[1], self._summary[1], self._facts[1], self._notes[1])
        return tuple(sentence for part in parts for sentence in part)

    def model(self) -> dict[str, Tensor]:
        """The trained parameters by name, empty until the run has ended; raises `RunError` if they are damaged."""
        from fedcef.runs.model_file import read_model  # torch takes seconds to load, and few readers want it

        path = self.path / "model.safetensors"
        return read_model(path) if path.is_file() else {}

    @cached_property
    def _settings(self) -> tuple[str, Record, list[str]]:
        text, damage = self._read("config.toml", lambda content: content.decode("utf-8"), "")
        nothing: Record = {}
        table, invalid = self._parsed("config.toml", lambda: tomllib.loads(text), nothing)
        return text, table, damage or invalid

    @cached_property
    def _records(self) -> tuple[list[Record], list[str]]:
        return self._lines("rounds.jsonl", record_lines)

    @cached_property
    def _notes(self) -> tuple[list[Record], list[str]]:
        return self._lines("notes.jsonl", json_lines)

    @cached_property
    def _summary(self) -> tuple[Record, list[str]]:
        return self._read("summary.json", _whole_object, {})

    @cached_property
    def _facts(self) -> tuple[Record, list[str]]:
        return self._read("facts.json", _whole_object, {})

    def _lines(self, name: str, parse: Callable[[bytes], list[Line]]) -> tuple[list[Record], list[str]]:
        empty: list[Line] = []
        lines, damage = self._read(name, parse, empty)
        damage += [
            f"In {self.path}, line {line.number} of {name} is damaged and left out."
            for line in lines
            if line.entry is None
        ]
        return [line.entry for line in lines if line.entry is not None], damage

    def _read(self, name: str, parse: Callable[[bytes], _T], missing: _T) -> tuple[_T, list[str]]:
        try:
            content = (self.path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return missing, []
        except OSError as error:
            return missing, [f"{self.path / name} cannot be read and is left out: {error.strerror}."]
        return self._parsed(name, lambda: parse(content), missing)

    def _parsed(self, name: str, parse: Callable[[], _T], otherwise: _T) -> tuple[_T, list[str]]:
        try:
            return parse(), []
        except (ValueError, RecursionError) as error:  # JSON, TOML and UTF-8 errors are ValueErrors
            return otherwise, [f"{self.path / name} cannot be read and is left out: {error}."]


def _whole_object(content: bytes) -> Record:
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found
