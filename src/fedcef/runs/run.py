"""A run from its settings to its summary."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

import fedcef
from fedcef.errors import DivergedError
from fedcef.problems.problem import Problem
from fedcef.runs.config import Config
from fedcef.runs.folder import Record, RunFolder, down_frame
from fedcef.simulation.engine import Simulation
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.optimum import solve
from fedcef.wire import Frame

Watcher = Callable[[Record], None]
"""Called with the record of every round, as it is written."""


def run(config: Config, folder: RunFolder, *, resume: bool = False, watch: Watcher = lambda record: None) -> Record:
    """Run to the end and return the summary; a run that diverges raises after its summary is written."""
    return _Run(config, folder, watch).to_the_end(resume)


class _Run:
    def __init__(self, config: Config, folder: RunFolder, watch: Watcher) -> None:
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
        )
        self.optimum = _optimum(config, self.problem) if config.eval.optimum else None
        # a gap is a difference of nearly equal numbers: it is taken in float64
        exact = torch.float64 if config.eval.optimum else self.problem.z0.dtype
        self.measured = self.problem.to(self.problem.z0.device, exact)
        self.wall_s = 0.0
        self.measures: dict[str, float] = {}
        self.expected: dict[int, Frame] = {}

    def to_the_end(self, resume: bool) -> Record:
        if not resume:
            self.folder.create(self.config.to_toml())
        else:
            self.expected = self.folder.logged_frames()
            self.folder.restore(self.simulation)
            records = self.folder.records()
            self.wall_s = records[-1]["wall_s"] if records else 0.0
        try:
            if self.simulation.round == 0:
                self._record(time.perf_counter())
            while self.simulation.round < self.config.rounds:
                self._round()
        except DivergedError as error:
            self.folder.save_summary(self._summary("diverged"))
            raise error
        if not self.measures:  # a run that was whole but for its summary
            self.measures = self._evaluate(all_samples=True)
        self.folder.save_model(self.simulation)
        summary = self._summary("finished")
        self.folder.save_summary(summary)
        return summary

    def _round(self) -> None:
        began = time.perf_counter()
        simulation, config = self.simulation, self.config
        down = simulation.step()
        simulation.check_finite()
        if config.snapshot_every:
            self._log(down_frame(down, simulation.round - 1))
        self._record(began)
        last = simulation.round == config.rounds
        if config.snapshot_every and (last or simulation.round % config.snapshot_every == 0):
            self.folder.save_snapshot(simulation)

    def _record(self, began: float) -> None:
        """Write down a round, evaluated if it is due."""
        round_, config = self.simulation.round, self.config
        last = round_ == config.rounds
        record: Record = {"round": round_, **self.simulation.ledger.totals()}
        if last or round_ % config.eval.every == 0:
            self.measures = self._evaluate(all_samples=last)
            record |= self.measures
        self.wall_s += time.perf_counter() - began
        record["wall_s"] = round(self.wall_s, 3)
        self.folder.add_record(record)
        self.watch(record)

    def _evaluate(self, all_samples: bool) -> dict[str, float]:
        samples = 0 if all_samples else self.config.eval.train_samples
        evaluator = Evaluator(self.measured, self.algorithm.step, samples, self.config.weighting)
        diagnostics = self.algorithm.diagnostics(self.simulation.replica, self.simulation.clients)
        point = self.simulation.model().to(self.measured.z0.dtype)
        measures = evaluator(point) | {name: float(value) for name, value in diagnostics.items()}
        if self.optimum is not None:
            measures["gap"] = measures["objective"] - self.optimum
        return measures

    def _log(self, frame: bytes) -> None:
        """Append to the round log.  A resumed run must repeat what was logged before it was cut off."""
        self.folder.add_frame(frame)
        before = self.expected.pop(self.simulation.round - 1, None)
        if before is not None and down_frame(before.message, before.round) != frame:
            self.watch({"note": f"Round {before.round} is not what was logged before the interruption; "
                                "was the run moved to another machine or version?"})  # fmt: skip

    def _summary(self, status: str) -> Record:
        config = self.config
        measures: dict[str, Any] = dict(self.measures) if status == "finished" else {}
        return {
            "label": config.label,
            "status": status,
            "algorithm": config.algorithm["name"],
            "dataset": config.data["name"],
            "model": config.model.get("name", ""),
            "parameters": self.problem.dim,
            "seed": config.seed,
            "rounds": self.simulation.round,
            "accuracy": measures.pop("accuracy", None),
            "train_loss": measures.pop("train_loss", None),
            "objective": measures.pop("objective", None),
            "stationarity": measures.pop("stationarity", None),
            "density": measures.pop("density", None),
            **measures,
            **self.simulation.ledger.totals(),
            "wall_s": round(self.wall_s, 3),
            "versions": versions(),
        }


_optima: dict[str, float] = {}


def _optimum(config: Config, problem: Problem) -> float:
    """F*, solved once for all the runs of a comparison that share the problem."""
    defining = {"seed", "num_clients", "weighting", "precision", "data", "model", "regularizer"}
    key = config.model_dump_json(include=defining)
    if key not in _optima:
        _, _optima[key] = solve(problem, weighting=config.weighting)
    return _optima[key]


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
