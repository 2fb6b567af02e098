"""A run is passed on to its trackers; one that fails is told once and left out from there on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedcef.core.errors import DivergedError
from fedcef.runs.loop import Watcher
from fedcef.runs.reader import RunReader
from fedcef.trackers.tracker import Tracker


class Tracking:
    """Several trackers of one run.  They start with its first record, when its folder is there."""

    def __init__(self, trackers: Mapping[str, Tracker], folder: Path, complain: Callable[[str], None]) -> None:
        self._left = dict(trackers)
        self._folder, self._complain = folder, complain
        self._last: int | None = None
        self._was_over = _is_over(folder)

    def record(self, record: Mapping[str, Any]) -> None:
        """Pass on a round, unless it was passed on before: a resumed run repeats some."""
        if self._last is None:
            self._each(lambda tracker: tracker.start(RunReader(self._folder).settings, self._folder))
        elif record["round"] <= self._last:
            return
        self._last = record["round"]
        self._each(lambda tracker: tracker.record(record))

    def finish(self, *, over: bool) -> None:
        """End with the run's summary, or without one where the run may go on."""
        if self._last is None and over and not self._was_over and _is_over(self._folder):
            self.record(RunReader(self._folder).records[-1])  # it had been interrupted after its last round
        if self._last is None:
            return
        self._each(lambda tracker: tracker.finish(RunReader(self._folder).summary if over else {}))
        self._left = {}

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in tuple(self._left.items()):
            try:
                call(tracker)
            except Exception as error:  # whatever it is: a run is worth more than its curves
                del self._left[name]
                why = " ".join(str(error).split())[:300]
                self._complain(f"{name} failed and is left out from here on: {type(error).__name__}: {why}")


def _is_over(folder: Path) -> bool:
    return (folder / "summary.json").is_file()


@contextmanager
def tracked(
    trackers: Mapping[str, Tracker], folder: Path, watch: Watcher, complain: Callable[[str], None]
) -> Iterator[Watcher]:
    """A watcher of a run that also passes its rounds on to trackers."""
    tracking = Tracking(trackers, folder, complain)

    def both(record: dict[str, Any]) -> None:
        if "note" not in record:
            tracking.record(record)  # first: a watcher may end the run, whose snapshot then has this round
        watch(record)

    over = False
    try:
        yield both
        over = True
    except DivergedError:
        over = True
        raise
    finally:
        tracking.finish(over=over)
