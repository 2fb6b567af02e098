"""The one loop of a simulated run: rounds, evaluations and records, told to a sink.

Rounds are started and written down apart.  On a GPU the host runs ahead by a few rounds: it starts a round, its
evaluation and the copies of what is to be kept, and writes a round down when its numbers have arrived, so that the
device never waits for a file.  On a CPU every round is written down before the next.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from fedcef.algorithms.algorithm import Message
from fedcef.core.interrupts import uninterrupted
from fedcef.runs.measures import Measuring
from fedcef.runs.reader import Record
from fedcef.runs.sinks import Sink
from fedcef.simulation.arrival import Arrival
from fedcef.simulation.simulation import Simulation
from fedcef.wire import Payload

Watcher = Callable[[Record], None]
"""Called with the record of every round as it is written, and with {"note": sentence}."""

_AHEAD = 4  # rounds that a GPU may be ahead of the records


@dataclass(frozen=True)
class _Started:
    """A round that the device works on: what will be written down of it."""

    round: int
    numbers: Arrival[Tensor]  # bytes so far, whether all is finite, and the measures if it is evaluated
    down: Arrival[Payload] | None  # its down-message
    snapshot: Arrival[Tensor] | None
    ratios: Record  # what a budget chose for it, and the time on a simulated network
    notes: tuple[str, ...]


class Loop:
    """Moves a simulation to its last round."""

    def __init__(
        self, simulation: Simulation, measuring: Measuring, sink: Sink, watch: Watcher = lambda record: None
    ) -> None:
        self.simulation, self.measuring, self.sink, self.watch = simulation, measuring, sink, watch
        self.last: Record = {}
        """The last round that was written down."""
        self.measures: dict[str, float] = {}
        """Of the last evaluation."""
        self.down: Message | None = None
        """The last round's down-message, if one was played here."""
        self.diverged_in = 0
        """The round that left numbers which are not finite."""
        self._training = simulation.training
        self._started: deque[_Started] = deque()
        self._clock = 0.0

    @property
    def wall_s(self) -> float:
        """Seconds of work on the run, up to the last round that was written down."""
        return float(self.last.get("wall_s", 0.0))

    def to_the_end(self, last: Record | None = None) -> None:
        """Play the rounds that are left; `last` is the record of the one before them, of a run that goes on.

        A run that is interrupted keeps what it has done so far, if its sink keeps anything.
        """
        self.last = last or {}
        self._clock = time.perf_counter() - self.wall_s
        try:
            self._play_all()
        except KeyboardInterrupt:
            self._keep()
            raise

    def _play_all(self) -> None:
        simulation = self.simulation
        ahead = _AHEAD if simulation.problem.z0.is_cuda and not simulation.listens else 0
        if self.last.get("round") != simulation.round:  # the start, or a round whose record was lost
            self._start(None)
        else:
            simulation.hear(self.last)
        while simulation.round < self._training.rounds:
            self._write_down(leave=ahead)
            if simulation.is_done:
                break
            self.down = simulation.step()
            self._start(self.down if self.sink.keeps_rounds and self._training.snapshot_every else None)
        self._write_down()
        if not self.measures:  # a run that was whole but for its summary
            self.measures = self.measuring.as_numbers(self.measuring.of(simulation, all_samples=True))

    def _keep(self) -> None:
        """Let an interrupted run go on where it is: write down what is known, and take a snapshot."""
        self._write_down()
        simulation = self.simulation
        if self.sink.keeps_rounds and self._training.snapshot_every and simulation.round:
            simulation.check_finite()
            with simulation.on_device():
                tensors = Arrival(flat(simulation.parts())).get()
            self.sink.snapshot(simulation.round, tensors)

    def _start(self, down: Message | None) -> None:
        """Ask the device for what will be written down of the round that it was just given."""
        simulation, training = self.simulation, self._training
        round_ = simulation.round
        with simulation.on_device():
            message = Arrival(down) if down is not None else None
            numbers = simulation.progress()
            if training.is_evaluated(round_):
                numbers |= self.measuring.of(simulation, all_samples=round_ == training.rounds)
            due = self.sink.keeps_rounds and training.is_kept(round_)
            snapshot = Arrival(flat(simulation.parts())) if due else None
            ratios, notes = {**simulation.ratios(), **simulation.clock()}, simulation.notes()
            self._started.append(_Started(round_, Arrival(numbers), message, snapshot, ratios, notes))

    def _write_down(self, leave: int = 0) -> None:
        """Write down the rounds that the device has finished, waiting until no more than `leave` are left."""
        while self._started and (len(self._started) > leave or self._started[0].numbers.is_here()):
            self._started[0].numbers.get()  # an interrupt of this wait leaves the round to be written down
            with uninterrupted():
                self._write_round(self._started.popleft())

    def _write_round(self, started: _Started) -> None:
        numbers = started.numbers.get()
        if not bool(numbers.pop("finite")):
            self.diverged_in = started.round
            raise self.simulation.diverged(started.round)
        if started.down is not None:
            said = self.sink.message(started.round - 1, started.down.get())
            if said:
                self.tell(started.round - 1, said)
        for note in started.notes:
            self.tell(started.round, note)
        self._record(started.round, numbers, started.ratios)
        if started.snapshot is not None:
            self.sink.snapshot(started.round, started.snapshot.get())

    def _record(self, round_: int, numbers: dict[str, Tensor], ratios: Record) -> None:
        sent = {name: int(numbers.pop(name)) for name in tuple(numbers) if name.endswith("_bytes")}
        if numbers:
            self.measures = self.measuring.as_numbers(numbers)
        measures = self.measures if numbers else {}
        wall_s = round(time.perf_counter() - self._clock, 3)
        self.last = {"round": round_, **sent, **ratios, **measures, "wall_s": wall_s}
        self.sink.record(self.last)
        self.watch(self.last)
        if said := self.simulation.hear(self.last):
            self.tell(round_, said)

    def tell(self, round_: int, sentence: str) -> None:
        """Tell a sentence, and keep it for whoever reads of the run."""
        self.sink.note(round_, sentence)
        self.watch({"note": sentence})


def flat(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What a snapshot holds, under the names that it has there."""
    return {f"{part}/{name}": tensor for part, state in parts.items() for name, tensor in state.items()}
