"""What a command shows of a run in progress, on standard error: standard output is left to the tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from fedcef.cli.terminal import errors, say
from fedcef.core.amounts import format_bytes

if TYPE_CHECKING:
    from fedcef.runs.loop import Watcher
    from fedcef.runs.reader import Record
    from fedcef.runs.settings import Settings

QUIET_S = 5.0
"""How long a run whose output goes to a file says nothing between its first round and its last."""
NAME, WIDE = 20, 100
"""Characters of a run's name, and of a terminal with room for a long bar."""


@contextmanager
def progress(settings: Settings) -> Iterator[Watcher]:
    """A bar with round, accuracy, bytes, speed and time left on a terminal; lines with the same elsewhere."""
    shown = _bar(settings) if errors.is_terminal else _lines(settings)
    with shown as show:

        def watch(record: Record) -> None:
            if "note" in record:
                say(record["note"], "yellow")
            else:
                show(record)

        yield watch


class _Speed(ProgressColumn):
    """Rounds in a second, over the last half minute."""

    def render(self, task: Task) -> Text:
        """The speed, once two rounds have told it."""
        speed = task.finished_speed or task.speed
        return Text(_speed(speed) if speed else "")


@contextmanager
def _bar(settings: Settings) -> Iterator[Watcher]:
    columns = (
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis", max_width=NAME),
        ),
        BarColumn(bar_width=24 if errors.width >= WIDE else 6),
        MofNCompleteColumn(),
        TextColumn("{task.fields[measure]}", table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[sent]}", table_column=Column(no_wrap=True)),
        _Speed(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=errors) as bar:
        task = bar.add_task(settings.label or settings.name, total=settings.rounds, measure="", sent="")

        def show(record: Record) -> None:
            if measure := _measure(record):
                bar.update(task, measure=measure)
            bar.update(task, completed=record["round"], sent=_sent(record))

        yield show


@contextmanager
def _lines(settings: Settings) -> Iterator[Watcher]:
    from fedcef.watch.words import format_duration

    name, rounds, told, measure = settings.label or settings.name, settings.rounds, 0.0, ""
    begin: tuple[int, float] | None = None

    def show(record: Record) -> None:
        nonlocal told, begin, measure
        now, done = time.monotonic(), record["round"]
        begin = begin or (done, now)
        measure = _measure(record) or measure  # of the last round that was evaluated, as on the bar
        if done not in (0, rounds) and now - told < QUIET_S:
            return
        told = now
        parts = [f"round {done}/{rounds}", measure, _sent(record), f"{record['wall_s']:.1f} s"]
        if now > begin[1] and done > begin[0]:
            speed = (done - begin[0]) / (now - begin[1])
            parts += [_speed(speed), f"{format_duration((rounds - done) / speed)} left" if done < rounds else ""]
        say(f"{name}: {', '.join(part for part in parts if part)}")

    yield show


def _speed(speed: float) -> str:
    return f"{speed:.3g} rounds/s"


def _measure(record: Record) -> str:
    """What the model has reached, if the round was evaluated."""
    if "accuracy" in record:
        return f"accuracy {100 * record['accuracy']:.1f}%"
    return f"objective {record['objective']:.4g}" if "objective" in record else ""


def _sent(record: Record) -> str:
    """What was sent so far, and the time that it is on a simulated network."""
    sent = format_bytes(record["wire_up_bytes"] + record["wire_down_bytes"])
    if "sim_s" not in record:
        return sent
    seconds = record["sim_s"]
    return f"{sent}, {seconds:,.{0 if seconds >= 10 else 1}f} s on its network"
