"""A short run, tracked."""

import json

from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run
from fedcef.runs.settings import Settings
from fedcef.trackers import tracked

CONFIG = Settings(
    name="tiny",
    label="Tiny one",
    rounds=6,
    num_clients=3,
    local_lr=0.01,
    data={"name": "lasso", "dim": 20, "support": 4},
    compressor={"name": "topk", "ratio": 0.2},
    eval={"every": 2},
    snapshot_every=2,
)


class Fake:
    """A tracker that keeps what it hears, and fails when it is told to."""

    def __init__(self, fails_in=""):
        self.heard, self.fails_in = [], fails_in

    def start(self, config, folder):
        self._hear("start", (config, folder))

    def record(self, record):
        self._hear("record", record)

    def finish(self, summary):
        self._hear("finish", summary)

    def _hear(self, call, what):
        self.heard.append((call, what))
        if call == self.fails_in:
            raise OSError(f"no {call}\ntoday")

    @property
    def rounds(self):
        return [what["round"] for call, what in self.heard if call == "record"]


def play(path, trackers, config=CONFIG, stop_after=None, resume=False):
    """Run with trackers, perhaps only up to a round; returns what was said."""
    said = []

    def watch(record):
        if stop_after is not None and record.get("round") == stop_after:
            raise KeyboardInterrupt

    with tracked(trackers, path, watch, said.append) as both:
        run(config, RunFolder(path), resume=resume, watch=both)
    return said


def records(path):
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


def summary(path):
    return json.loads((path / "summary.json").read_text())
