"""The quick stage: a thousand faults and more on server and clients in one process, as in tests/deployment."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from deployment.loopback import Loopback
from deployment.setting import small_settings
from deployment.test_faults import check, control_gap
from fedcef.core.errors import FedcefError

METHODS = ("fedcef", "fedcef lossy", "scaffold", "feddr", "fedcef qsgd", "fedda", "fedcef dense")
SUMMED = ("fedcef", "fedcef lossy", "scaffold", "fedcef qsgd", "fedcef dense")
"""Those with a c that is the mean of the c_i."""
CHANCE = 0.05
ROUNDS = 40


@dataclass
class Stage:
    faults: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    runs: int = 0
    rounds: int = 0


def play_loopback(seed: int, events: int, until_violated: bool = False) -> Stage:
    """Every method once, and on until so many faults have happened; or until something does not hold."""
    stage = Stage()
    while sum(stage.faults.values()) < events or stage.runs < len(METHODS):
        if until_violated and stage.violations:
            break
        method = METHODS[stage.runs % len(METHODS)]
        settings = small_settings(method, rounds=ROUNDS, snapshot_every=4, seed=seed + stage.runs)
        with TemporaryDirectory() as folder:
            loop = Loopback(settings, Path(folder), seed=seed + stage.runs, chance=CHANCE)
            try:
                reference = check(loop.run())
                if method in SUMMED:
                    stage.gaps.append(control_gap(loop, reference))
                    if stage.gaps[-1] > 1e-5:
                        stage.violations.append(f"Run {stage.runs}: c is {stage.gaps[-1]:g} off the mean of the c_i.")
            except (AssertionError, FedcefError) as error:
                at = traceback.extract_tb(error.__traceback__)[-1]
                said = " ".join(str(error).split()) or at.line
                stage.violations.append(f"Run {stage.runs} ({method}), {at.name}: {said}")
        stage.faults += loop.faults
        stage.refused += Counter({reason: n for reason, n in loop.outcomes.items() if reason != "accepted"})
        stage.runs, stage.rounds = stage.runs + 1, stage.rounds + settings.rounds
    return stage
