"""A run from its settings to its summary.

Rounds are started and written down apart.  On a GPU the host runs ahead by a few rounds: it starts a round, its
evaluation and the copies of what is to be kept, and writes a round down when its numbers have arrived, so that the
device never waits for a file.  On a CPU every round is written down before the next.
"""

from __future__ import annotations

import json
import platform
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

import fedcef
from fedcef.core.errors import DivergedError
from fedcef.core.parts import make
from fedcef.core.schedules import SCHEDULES
from fedcef.problems.problem import Problem
from fedcef.runs.facts import write_facts
from fedcef.runs.folder import Record, RunFolder, down_frame, snapshot_tensors
from fedcef.runs.settings import Settings
from fedcef.simulation.arrival import Arrival
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.optimum import solve
from fedcef.simulation.simulation import Simulation
from fedcef.wire import Frame, Payload

Watcher = Callable[[Record], None]
"""Called with the record of every round, as it is written."""

_AHEAD = 4  # rounds that a GPU may be ahead of the files


@dataclass(frozen=True)
class _Started:
    """A round that the device works on: what will be written down of it."""

    round: int
    numbers: Arrival[Tensor]  # bytes so far, whether all is finite, and the measures if it is evaluated
    down: Arrival[Payload] | None  # its down-message
    snapshot: Arrival[Tensor] | None
    ratios: Record  # what a budget chose for it
    notes: tuple[str, ...]


def run(config: Settings, folder: RunFolder, *, resume: bool = False, watch: Watcher = lambda record: None) -> Record:
    """Run to the end and return the summary; a run that diverges raises after its summary is written."""
    return _Run(config, folder, watch).to_the_end(resume)


class _Run:
    def __init__(self, config: Settings, folder: RunFolder, watch: Watcher) -> None:
        self.config, self.folder, self.watch = config, folder, watch
        self.problem = config.build_problem()
        self.algorithm = config.build_algorithm(self.problem)
        self.simulation = Simulation(
            self.problem,
            self.algorithm,
            seed=config.seed,
            batch_size=config.batch_size,
            clip_norm=config.clip_norm or None,
            clients_per_round=config.clients_per_round or None,
            weighting=config.weighting,
            oracle=config.oracle,
            precision=config.precision,
            local_schedule=make("local_schedule", SCHEDULES, config.local_schedule).for_rounds(config.rounds),
            server_schedule=make("server_schedule", SCHEDULES, config.server_schedule).for_rounds(config.rounds),
            cuda_graphs=config.cuda_graphs,
            budget=config.build_budget(),
        )
        self.optimum = _optimum(config, self.problem) if config.eval.optimum else None
        # a gap is a difference of nearly equal numbers: it is taken in float64
        exact = torch.float64 if config.eval.optimum else self.problem.z0.dtype
        self.measured = self.problem.to(self.problem.z0.device, exact)
        self.evaluators: dict[int, Evaluator] = {}
        self.started: deque[_Started] = deque()
        self.wall_s, self.clock = 0.0, time.perf_counter()
        self.last: Record = {}  # the last round that was written down
        self.measures: dict[str, float] = {}
        self.diverged_in = 0
        self.expected: dict[int, Frame] = {}

    def to_the_end(self, resume: bool) -> Record:
        simulation, config = self.simulation, self.config
        if not resume:
            self.folder.create(config.to_toml())
        else:
            self.expected = self.folder.logged_frames()
            self.folder.restore(simulation)
            records = self.folder.records()
            self.last = records[-1] if records else {}
            self.wall_s = self.last.get("wall_s", 0.0)
        write_facts(self.folder, simulation)
        self.clock = time.perf_counter() - self.wall_s
        ahead = _AHEAD if self.problem.z0.is_cuda else 0
        down = None
        try:
            if simulation.round == 0:
                self._start(down=None)
            while simulation.round < config.rounds:
                self._write_down(leave=ahead)
                down = simulation.step()
                self._start(Arrival(down) if config.snapshot_every else None)
            self._write_down()
        except DivergedError as error:
            self.folder.save_summary(self._summary("diverged"))
            raise error
        if not self.measures:  # a run that was whole but for its summary
            self.measures = self._as_numbers(Arrival(self._evaluate(all_samples=True)).get())
        self.folder.save_model(simulation)
        summary = self._summary("finished")
        self.folder.save_summary(summary)
        write_facts(self.folder, simulation, down)
        return summary

    def _start(self, down: Arrival[Payload] | None) -> None:
        """Ask the device for what will be written down of the round that it was just given."""
        simulation, config = self.simulation, self.config
        round_, last = simulation.round, simulation.round == config.rounds
        numbers = simulation.progress()
        if last or round_ % config.eval.every == 0:
            numbers |= self._evaluate(all_samples=last)
        due = config.snapshot_every and round_ and (last or round_ % config.snapshot_every == 0)
        snapshot = Arrival(snapshot_tensors(simulation)) if due else None
        spender = simulation.spender
        ratios, notes = (spender.ratios(), spender.take_notes()) if spender else ({}, ())
        self.started.append(_Started(round_, Arrival(numbers), down, snapshot, ratios, notes))

    def _write_down(self, leave: int = 0) -> None:
        """Write down the rounds that the device has finished, waiting until no more than `leave` are left."""
        while self.started and (len(self.started) > leave or self.started[0].numbers.is_here()):
            started = self.started.popleft()
            numbers = started.numbers.get()
            if not bool(numbers.pop("finite")):
                self.diverged_in = started.round
                raise self.simulation.diverged(started.round)
            if started.down is not None:
                self._log(down_frame(started.down.get(), started.round - 1), started.round - 1)
            for note in started.notes:
                self._note(started.round, note)
            self._record(started.round, numbers, started.ratios)
            if started.snapshot is not None:
                self.folder.save_snapshot(started.round, started.snapshot.get())

    def _record(self, round_: int, numbers: dict[str, Tensor], ratios: Record) -> None:
        sent = {name: int(numbers.pop(name)) for name in tuple(numbers) if name.endswith("_bytes")}
        if numbers:
            self.measures = self._as_numbers(numbers)
        self.wall_s = time.perf_counter() - self.clock
        measures = self.measures if numbers else {}
        self.last = {"round": round_, **sent, **ratios, **measures, "wall_s": round(self.wall_s, 3)}
        self.folder.add_record(self.last)
        self.watch(self.last)

    def _evaluate(self, all_samples: bool) -> dict[str, Tensor]:
        """All measures of the current point, on the device."""
        samples = 0 if all_samples else self.config.eval.train_samples
        point = self.simulation.model().to(self.measured.z0.dtype)
        return self._evaluator(samples).measure(point) | self.algorithm.diagnostics(
            self.simulation.replica, self.simulation.clients
        )

    def _evaluator(self, samples: int) -> Evaluator:
        if samples not in self.evaluators:
            config = self.config
            step = self.algorithm.step
            self.evaluators[samples] = Evaluator(self.measured, step, samples, config.weighting, config.precision)
        return self.evaluators[samples]

    def _as_numbers(self, measures: dict[str, Tensor]) -> dict[str, float]:
        numbers = {name: float(value) for name, value in measures.items()}
        return numbers if self.optimum is None else {**numbers, "gap": numbers["objective"] - self.optimum}

    def _log(self, frame: bytes, round_: int) -> None:
        """Append to the round log.  A resumed run must repeat what was logged before it was cut off."""
        self.folder.add_frame(frame)
        before = self.expected.pop(round_, None)
        if before is not None and down_frame(before.message, round_) != frame:
            self._note(round_, f"Round {round_} is not what was logged before the interruption; "
                               "was the run moved to another machine or version?")  # fmt: skip

    def _note(self, round_: int, sentence: str) -> None:
        """Tell a sentence, and keep it for whoever watches the folder."""
        with (self.folder.path / "notes.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"round": round_, "note": sentence}) + "\n")
        self.watch({"note": sentence})

    def _summary(self, status: str) -> Record:
        measures: dict[str, Any] = dict(self.measures) if status == "finished" else {}
        return {
            **what_ran(self.config, self.problem.dim, status),
            "rounds": self.last.get("round", 0) if status == "finished" else self.diverged_in,
            "accuracy": measures.pop("accuracy", None),
            "train_loss": measures.pop("train_loss", None),
            "objective": measures.pop("objective", None),
            "stationarity": measures.pop("stationarity", None),
            "density": measures.pop("density", None),
            **measures,
            **{name: self.last.get(name, 0) for name in self.simulation.ledger.on_device()},
            **self._spent(),
            "wall_s": round(self.wall_s, 3),
            "versions": versions(),
        }

    def _spent(self) -> dict[str, float]:
        """What the most active client has given away by its messages, if they are private."""
        privacy, simulation = self.config.privacy, self.simulation
        if privacy is None:
            return {}
        everyone = simulation.cohort_size == self.problem.num_clients
        cohorts = () if everyone else map(simulation.cohort, range(simulation.round))
        sent = Counter(client for cohort in cohorts for client in cohort.tolist())
        return privacy.spent(simulation.round if everyone else max(sent.values(), default=0))


_optima: dict[str, float] = {}


def _optimum(config: Settings, problem: Problem) -> float:
    """F*, solved once for all the runs of a comparison that share the problem."""
    defining = {"seed", "num_clients", "weighting", "precision", "data", "model", "regularizer"}
    key = config.model_dump_json(include=defining)
    if key not in _optima:
        _, _optima[key] = solve(problem, weighting=config.weighting)
    return _optima[key]


def what_ran(config: Settings, parameters: int, status: str) -> Record:
    """How every summary begins."""
    return {
        "label": config.label,
        "status": status,
        "algorithm": config.algorithm["name"],
        "dataset": config.data["name"],
        "model": config.model.get("name", ""),
        "parameters": parameters,
        "seed": config.seed,
    }


def versions() -> dict[str, str]:
    return {
        "fedcef": fedcef.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def next_folder(parent: Path, name: str) -> Path:
    """A folder for a run that was given none: runs/NAME-1, runs/NAME-2, …"""
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
