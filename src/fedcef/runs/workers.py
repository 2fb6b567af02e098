"""Runs side by side, in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from threading import Thread

import torch

from fedcef.core.threads import cores
from fedcef.runs.reader import Record
from fedcef.runs.sweep import Outcome, Planned, attempt


def side_by_side(runs: Iterable[Planned], jobs: int, note: Callable[[str], None]) -> Generator[Outcome, None, None]:
    """Carry out the runs in `jobs` processes; outcomes come as they happen.

    Closing the iterator ends the processes at once, which leaves runs that can be resumed.
    """
    waiting = list(runs)
    workers = [_Worker(jobs) for _ in range(min(jobs, len(waiting)))]
    try:
        for worker in workers:
            worker.take(waiting.pop(0))
        while busy := {worker.connection: worker for worker in workers if worker.planned}:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                answer = worker.answer()
                if isinstance(answer, str):
                    note(answer)
                    continue
                if not worker.process.is_alive() and waiting:
                    workers[workers.index(worker)] = worker = _Worker(jobs)
                if waiting:
                    worker.take(waiting.pop(0))
                yield answer
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that runs what it is given, one after the other."""

    def __init__(self, jobs: int) -> None:
        # spawned, not forked: a forked process cannot use CUDA
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.planned: Planned | None = None
        self.process = context.Process(target=_work, args=(theirs, max(1, cores() // jobs)), daemon=True)
        # Ctrl-C reaches every process of a terminal; only the first one answers it, by ending the others
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        theirs.close()

    def take(self, planned: Planned) -> None:
        """Begin with a run."""
        self.planned = planned
        with suppress(OSError):  # a process that is gone is noticed by `answer`
            self.connection.send(planned)

    def answer(self) -> Outcome | str:
        """The outcome of the run, or a note about it."""
        assert self.planned is not None
        planned = self.planned
        try:
            answer: Outcome | str = self.connection.recv()
        except (EOFError, OSError):
            self.end()
            reason = f"Its process ended with {self.process.exitcode}; was there not enough memory?"
            answer = Outcome(planned, "failed", reason, 1)
        if isinstance(answer, Outcome):
            self.planned = None
        return answer

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.connection.close()
        self.process.terminate()
        self.process.join()


def _work(connection: Connection, threads: int) -> None:
    """What a worker does: runs from the connection until it is closed."""
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)

    def watch(record: Record) -> None:
        if "note" in record:
            connection.send(record["note"])

    with suppress(EOFError, OSError):  # whoever gave the work has closed the connection, at any moment
        while True:
            connection.send(attempt(connection.recv(), watch))


def _end_with_parent() -> None:
    """End this process with the one that started it: no run may go on unseen while the same command is given again."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
