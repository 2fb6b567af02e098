"""Five deliberate bugs, each where a deployment keeps its promises: the fault suite must catch every one.

    python -m faults.mutants        leaves with 1 if one is not caught, or if the code itself is found wanting

A suite that finds nothing wrong says little unless it would have found something.  These are mistakes that somebody
could make: each keeps every run without faults as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from faults.loopback import Stage, play_loopback
from fedcef.core.disk import Disk
from fedcef.deployment.client_sums import ClientSums
from fedcef.deployment.messages import HASH, Stamp
from fedcef.deployment.server_state import ServerState
from fedcef.deployment.worker import Worker

ENOUGH = 300
"""Faults that the code must stand without a mutant, at least."""
MOST = 3000
"""Faults after which a mutant counts as not caught, once every method has met it."""


@contextmanager
def acknowledgement() -> Iterator[None]:
    """A client takes its last message for accepted, whatever the server says."""

    def always_pending(self, order, state):
        if state is not None and order.last is not None:
            return order.last, state.pending
        return None, self.protocol.algorithm.client_init(self.protocol.z0)

    with patch.object(Worker, "_state_to_go_on_with", always_pending):
        yield


@contextmanager
def log_order() -> Iterator[None]:
    """The round is logged before the replies that it came from."""
    commit = ServerState.commit

    def log_first(self, accepted, ended, note, *total):
        append, keep = self.replies.append, []
        with patch.object(self.replies, "append", lambda *entry: keep.append(entry)):
            log = self.log.append

            def then_replies(frame):
                log(frame)
                append(*keep[0])

            with patch.object(self.log, "append", then_replies):
                commit(self, accepted, ended, note, *total)

    with patch.object(ServerState, "commit", log_first):
        yield


@contextmanager
def sync() -> Iterator[None]:
    """What is appended is not synced."""

    def append(self, path, data, at):
        with path.open("r+b") as file:
            file.seek(at)
            file.truncate()
            self.write(file, data)

    with patch.object(Disk, "append", append):
        yield


@contextmanager
def stamp() -> Iterator[None]:
    """A state is known by its round alone."""
    with patch.object(Stamp, "after", classmethod(lambda cls, base, round_, frame: cls(round_, bytes(HASH)))):
        yield


@contextmanager
def sum_() -> Iterator[None]:
    """What a client sent since the last snapshot is forgotten when it begins afresh."""

    def of(self, client, replies, before):
        return self._read(client)[1] if self._parts else {}

    with patch.object(ClientSums, "of", of):
        yield


MUTANTS: dict[str, Callable[[], object]] = {
    "acknowledgement": acknowledgement,
    "log order": log_order,
    "sync": sync,
    "stamp": stamp,
    "sum": sum_,
}


def caught(name: str, seed: int = 1) -> Stage:
    """Play until a mutant is caught, or give up."""
    with MUTANTS[name]():  # type: ignore[attr-defined]
        return play_loopback(seed, MOST, until_violated=True)


def main() -> int:
    clean = play_loopback(1, ENOUGH)
    print(f"without a mutant: {sum(clean.faults.values())} faults, {len(clean.violations)} violations")
    print("\n".join(clean.violations))
    wrong = bool(clean.violations)
    for name in MUTANTS:
        stage = caught(name)
        wrong |= not stage.violations
        said = stage.violations[0] if stage.violations else "NOT CAUGHT"
        print(f"{name}: after {sum(stage.faults.values())} faults: {said}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
