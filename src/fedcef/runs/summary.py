"""How a run ended, in a few numbers: what `summary.json` holds."""

from __future__ import annotations

import platform
from collections import Counter
from typing import Any

import numpy
import torch

import fedcef
from fedcef.runs.loop import Loop
from fedcef.runs.reader import Record
from fedcef.runs.settings import Settings
from fedcef.simulation.simulation import Simulation

_FIRST = ("accuracy", "train_loss", "objective", "stationarity", "density")


def summary_of(settings: Settings, loop: Loop, status: str) -> Record:
    """The summary of a simulated run that is "finished" or "diverged"."""
    measures: dict[str, Any] = dict(loop.measures) if status == "finished" else {}
    return {
        **what_ran(settings, loop.simulation.problem.dim, status),
        "rounds": loop.last.get("round", 0) if status == "finished" else loop.diverged_in,
        **{name: measures.pop(name, None) for name in _FIRST},
        **measures,
        **({"stopped_early": loop.stopped} if loop.stopped else {}),
        **{name: loop.last.get(name, 0) for name in loop.simulation.ledger.on_device()},
        **_chosen(loop.simulation),
        **_spent(settings, loop),
        **({"sim_s": loop.last["sim_s"]} if "sim_s" in loop.last else {}),
        "wall_s": round(loop.wall_s, 3),
        "versions": versions(),
    }


def what_ran(settings: Settings, parameters: int, status: str) -> Record:
    """How every summary begins."""
    return {
        "label": settings.label,
        "status": status,
        "algorithm": settings.algorithm["name"],
        "dataset": settings.data["name"],
        "model": settings.model.get("name", ""),
        "parameters": parameters,
        "seed": settings.seed,
    }


def versions() -> dict[str, str]:
    """What the run was made with."""
    return {
        "fedcef": fedcef.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def _chosen(simulation: Simulation) -> Record:
    """What the run chose by itself, in a sentence, and how its server sends, which the settings then do not tell."""
    sentence, algorithm = simulation.chosen(), simulation.current_engine().algorithm
    return {"chosen": sentence, "downlink": getattr(algorithm, "downlink", "")} if sentence else {}


def _spent(settings: Settings, loop: Loop) -> dict[str, float]:
    """What the most active client has given away by its messages, if they are private."""
    if settings.privacy is None:
        return {}
    played, rounds = loop.simulation.round, loop.simulation.engine.rounds
    everyone = rounds.cohort_size == rounds.num_clients
    cohorts = () if everyone else map(rounds.cohort, range(played))
    sent = Counter(client for cohort in cohorts for client in cohort.tolist())
    return settings.privacy.spent(played if everyone else max(sent.values(), default=0))
