"""Following runs on the terminal until they are over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live

from fedcef.watch.follow import Followed, Listener, find_followed, modified
from fedcef.watch.screen import draw_screen

EVERY_S = 0.5  # between looks at the folders
GRACE_S = 15.0  # a sweep whose runs are all over may be about to begin another


class Watched:
    """The runs at a path: one, or those of a comparison or sweep, also runs that begin later."""

    def __init__(self, path: Path, listener: Callable[[Path], Listener | None] = lambda folder: None) -> None:
        self.path, self._listener = path, listener
        self._runs: dict[Path, Followed] = {}
        self.update()

    @property
    def runs(self) -> Sequence[Followed]:
        """Those that have begun."""
        return list(self._runs.values())

    def update(self) -> None:
        """Look for new runs and new rounds."""
        for folder in find_followed(self.path):
            if folder not in self._runs:
                self._runs[folder] = Followed(folder, self._listener(folder))
        for run in self._runs.values():
            if not run.over:
                run.update()
                if run.over:
                    run.close()

    def close(self) -> None:
        """Follow no more runs that may go on."""
        for run in self._runs.values():
            if not run.over:
                run.close()

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        ended = all(run.over for run in self._runs.values())
        return ended if self.path in self._runs else self._batch_over(ended)

    def _batch_over(self, ended: bool) -> bool:
        """A sweep writes its table last, also where runs failed; without one, another run may be about to begin."""
        last = max(run.changed for run in self._runs.values())
        return modified(self.path / "summary.csv") >= last or (ended and time.time() - last > GRACE_S)


def follow(watched: Watched, console: Console, forever: bool = False) -> None:
    """Show the runs until they are over, or for ever; where there is no terminal, only the last screen."""
    try:
        with Live(
            draw_screen(watched.runs), console=console, refresh_per_second=4, auto_refresh=console.is_terminal
        ) as live:
            while forever or not watched.over:
                time.sleep(EVERY_S)
                watched.update()
                live.update(draw_screen(watched.runs))
    finally:
        if not console.is_terminal:
            console.print()  # there the last screen does not end its line
