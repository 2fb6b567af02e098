"""The clients' numbers of a run, for an operator while its server is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from fedcef.core.disk import PrivateDisk
from fedcef.deployment.identity import Roster
from fedcef.runs.folder import RunFolder
from fedcef.runs.kinds import refuse_simulated
from fedcef.runs.reader import RunReader


@contextmanager
def opened_roster(path: Path, writes: bool = True) -> Iterator[Roster]:
    """The list of a run's clients; one who writes keeps the server away."""
    refuse_simulated(path)
    folder = RunFolder.open(path)
    with folder.locked() if writes else nullcontext():
        yield Roster(path / "clients.jsonl", int(RunReader(path).settings["num_clients"]), PrivateDisk())
