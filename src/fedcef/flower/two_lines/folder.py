"""The rounds of a Flower app as a run folder, which `fedcef report`, `plot` and `watch` open."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tomli_w
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.flower.two_lines.counting import Tally
from fedcef.runs.folder import RunFolder
from fedcef.runs.kinds import TWO_LINES
from fedcef.runs.reader import Record
from fedcef.runs.summary import versions

_WORDS = {"accuracy": ("accuracy", "acc"), "test_loss": ("loss",)}
"""How the report calls a measure, and how apps do."""


class Folder:
    """A run folder of an app that is not ours.

    Args:
        path: where it will be; nothing is written before the run begins.
        settings: what to say of the run in its config.toml.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, resume: bool = False) -> None:
        self._run, self.disk = RunFolder.open(path) if resume else RunFolder.new(path), Disk()
        self.state = path / "server.bin"
        """What the server knows, for a run that goes on."""
        self._before = _last(self._run) if resume else {}
        self._settings = dict(settings)
        self._tallies: dict[str, Tally] = {}
        self._measured: dict[int, Record] = {}
        self._over, self._parameters = 0, 0

    def locked(self) -> AbstractContextManager[None]:
        """Keep a second server from this run within the block."""
        return self._run.locked()

    def begin(
        self, arguments: dict[str, Any], tallies: dict[str, Tally], over: int = 0, record: Record | None = None
    ) -> None:
        """A run with these arguments of `start` begins, or goes on after so many rounds, the last with this record.

        Its measures are heard of as they come.
        """
        if record and record["round"] > self._before.get("round", -1):  # it was cut off before that line was written
            self._run.add_record(record)
            self._before = record
        self._tallies, self._over = tallies, over
        initial = arguments.get("initial_arrays")
        if isinstance(initial, ArrayRecord):
            self._parameters = sum(array.numpy().size for array in initial.values() if array.stype == "numpy.ndarray")
        if not self._before:
            settings = {"name": self._run.path.name, "rounds": arguments.get("num_rounds", 3), **self._settings}
            self._run.create(tomli_w.dumps({**settings, "data": {"name": "flower app"}}))
            self.disk.replace(self._run.path / "run.json", json.dumps({"app": TWO_LINES}).encode())
        if (evaluate := arguments.get("evaluate_fn")) is not None:
            arguments["evaluate_fn"] = self._listening(evaluate)
        tallies["bytes"].on_round = self._round_over

    def _round_over(self, number: int) -> None:
        if number or not self._over:  # what was before this start has its line
            self._run.add_record(self._line(number))

    def finish(self, result: Result) -> None:
        """The run is over: all lines once more, now with the measures of the clients, and the summary."""
        for number, metrics in result.evaluate_metrics_clientapp.items():
            self._measured[number] = _measures(metrics) | self._measured.get(number, {})
        now = [self._line(number) for number in self._tallies["bytes"].rounds if number or not self._over]
        lines = [line for line in self._run.records() if line["round"] <= self._over and self._over] + now
        self.disk.replace(self._run.rounds, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        said = {"label": "", "status": "finished", "algorithm": self._settings["algorithm"]["name"]}
        self._run.save_summary({**said, "parameters": self._parameters, **lines[-1], "versions": versions()})

    def so_far(self) -> Record:
        """The record of the round that is going on, as far as it has come."""
        tally = self._tallies["bytes"]
        tally.close()
        return self._line(tally.round)

    def _line(self, number: int) -> Record:
        """The record of a round: sums up to it, in the words of every other run."""
        tally, plain = self._tallies["bytes"], self._tallies.get("plain-bytes", self._tallies["bytes"])
        parts = tally.rounds[number].bytes
        sums = {
            "wire_up_bytes": tally.total("up", number),
            "wire_down_bytes": tally.total("down", number),
            "paper_up_bytes": plain.total("up", number),
            "paper_down_bytes": plain.total("down", number),
        }
        return {
            "round": number + self._over,
            **{name: value + self._before.get(name, 0) for name, value in sums.items()},
            **{f"{direction}_{part}_bytes": size for (direction, part), size in sorted(parts.items())},
            **self._measured.get(number, {}),
            "wall_s": round(
                sum(tally.rounds[past].seconds for past in range(number + 1)) + self._before.get("wall_s", 0), 3
            ),
        }

    def _listening(self, evaluate: Callable[[int, ArrayRecord], MetricRecord | None]) -> Any:
        def heard(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate(number, arrays)
            if metrics is not None:
                self._measured[number] = _measures(metrics)
            return metrics

        return heard


def _last(run: RunFolder) -> Record:
    """The last record of a run that was cut off; one that is over is refused."""
    if run.read_summary():
        raise RunError(f"The run in {run.path} is over; choose another folder.")
    records = run.records()
    return records[-1] if records else {}


def _measures(metrics: Mapping[str, Any]) -> Record:
    """An app's measures under the names that the report knows, as far as it knows them."""
    found: Record = {}
    for name, value in metrics.items():
        words = name.lower().replace("-", "_").split("_")
        known = next((ours for ours, theirs in _WORDS.items() if set(words) & set(theirs)), name)
        if isinstance(value, int | float):
            found.setdefault(known, float(value))
    return found
