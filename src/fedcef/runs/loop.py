"""The one loop of a simulated run: rounds, evaluations and records, told to a sink.

Rounds are started and written down apart.  On a GPU the host runs ahead by a few rounds: it starts a round, its
evaluation and the copies of what is to be kept, and writes a round down when its numbers have arrived, so that the
device never waits for a file.  On a CPU every round is written down before the next.
"""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from torch import Tensor, nn

from fedcef.algorithms.algorithm import Message
from fedcef.core.interrupts import uninterrupted
from fedcef.problems.copying import copied
from fedcef.runs.measures import Measuring
from fedcef.runs.reader import Record
from fedcef.runs.sinks import Sink
from fedcef.runs.stopping import Patience
from fedcef.runs.without_effect import without_effect
from fedcef.simulation.arrival import Arrival
from fedcef.simulation.simulation import Simulation
from fedcef.simulation.workers import team
from fedcef.wire import Payload, WireError

Watcher = Callable[..., None]
"""Called with the record of every round as it is written, and with {"note": sentence}.  One that takes two arguments is
called with the model, too: a module after an evaluated round, otherwise None."""

_NO_LOSS = (
    "The training loss is not a number where the run begins, so that no loss and no objective can be recorded: a "
    "client's loss may not be defined, as where the loss ignores all of its labels; leave such clients out."
)
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
        self.stopped = ""
        """Why the run ended before its last round, if it did."""
        self._training = simulation.training
        self._patience = Patience.of(self._training)
        self._shows_model = takes_model(watch)
        self._started: deque[_Started] = deque()
        self._clock = 0.0

    @property
    def wall_s(self) -> float:
        """Seconds of work on the run, up to the last round that was written down."""
        return float(self.last.get("wall_s", 0.0))

    def to_the_end(self, earlier: Sequence[Record] = ()) -> None:
        """Play the rounds that are left; `earlier` are the records of those before them, of a run that goes on.

        A run that is interrupted keeps what it has done so far, if its sink keeps anything.
        """
        self.last = earlier[-1] if earlier else {}
        for record in earlier:
            self._be_patient(record)
        self._clock = time.perf_counter() - self.wall_s
        try:
            self._play_all()
        except KeyboardInterrupt:
            self._keep()
            raise

    def _play_all(self) -> None:
        simulation = self.simulation
        waits = simulation.listens or self._shows_model or self._patience is not None
        ahead = _AHEAD if simulation.problem.z0.is_cuda and not waits else 0
        if not (simulation.round or self.last):
            for note in (*simulation.problem.notes, *without_effect(simulation.algorithm, self._training)):
                self.tell(0, note)
        if self.last.get("round") != simulation.round:  # the start, or a round whose record was lost
            self._start(None)
        else:
            simulation.hear(self.last)
        while simulation.round < self._training.rounds:
            self._write_down(leave=ahead)
            if simulation.is_done or self.stopped:
                break
            self.down = simulation.step()
            self._start(self.down if self.sink.keeps_rounds and self._training.snapshot_every else None)
        self._write_down()
        if (
            not self.measures or self.stopped
        ):  # a run that was whole but for its summary, or did not know its last round
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
            if training.is_evaluated(round_) or simulation.is_done:
                last = simulation.is_done or round_ == training.rounds
                numbers |= self.measuring.of(simulation, all_samples=last)
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
            try:
                said = self.sink.message(started.round - 1, started.down.get())
            except WireError as error:  # finite numbers, but too large for their code
                self.diverged_in, why = started.round, str(error).rstrip(".")
                raise self.simulation.diverged(started.round, f"cannot be told to the clients ({why})") from None
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
        self._show(self.last)
        if not round_ and isnan(measures.get("train_loss", 0.0)):
            self.tell(round_, _NO_LOSS)
        if said := self.simulation.hear(self.last):
            self.tell(round_, said)
        self._be_patient(self.last)
        if self.stopped:
            self.tell(round_, self.stopped)

    def _be_patient(self, record: Record) -> None:
        """Hear whether the run is over, the same in all its processes."""
        if self._patience is None or self.stopped or record["round"] == self._training.rounds:
            return
        said, processes = self._patience.hear(record), team()
        self.stopped = said if processes is None else processes.from_first(lambda: said)

    def _show(self, record: Record) -> None:
        if self._shows_model:
            self.watch(record, self._model() if "objective" in record else None)
        else:
            self.watch(record)

    def _model(self) -> nn.Module:
        """A copy of the problem's module with the parameters so far."""
        problem = self.simulation.problem
        model = copied(problem.model)
        model.load_state_dict(problem.state_dict(self.simulation.model(), statistics=self.simulation.statistics()))
        return model

    def tell(self, round_: int, sentence: str) -> None:
        """Tell a sentence, and keep it for whoever reads of the run."""
        self.sink.note(round_, sentence)
        self._show({"note": sentence})


def takes_model(watch: Callable[..., Any]) -> bool:
    """Whether a function is to be called with a record and a model: it must be given two arguments, or names one so."""
    try:
        parameters = list(inspect.signature(watch).parameters.values())
    except (TypeError, ValueError):  # of some functions that are not written in Python
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(places) >= 2 and (places[1].default is places[1].empty or places[1].name == "model")


def flat(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What a snapshot holds, under the names that it has there."""
    return {f"{part}/{name}": tensor for part, state in parts.items() for name, tensor in state.items()}
