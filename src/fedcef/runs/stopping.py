"""When a run has stopped getting better: the section `stop`.

The decision depends on the records alone, so that a run that goes on after an interruption comes to the same one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedcef.core.errors import ConfigError
from fedcef.core.training import Stopping, Training
from fedcef.problems.metrics import HIGHER, METRICS, find_metric


class Patience:
    """Hears the records of a run in their order, and says when it has been patient enough."""

    def __init__(self, options: Stopping, higher: bool) -> None:
        self._options, self._sign = options, 1 if higher else -1
        self._best, self._round, self._since = -math.inf, 0, 0

    @classmethod
    def of(cls, training: Training) -> Patience | None:
        """As the options of a run have it; None where they have none."""
        if training.stop is None:
            return None
        name, mode = training.stop.measure, training.stop.mode
        own = [found for metric in training.eval.metrics if metric not in METRICS and (found := find_metric(metric)[0])]
        if name in own and mode == "auto":
            raise ConfigError(f"stop.mode is auto, which does not know {name}; it must be min or max.")
        spread = name.startswith("client_accuracy_") and name != "client_accuracy_std"
        return cls(
            training.stop, mode == "max" or (mode == "auto" and (name.removeprefix("validation_") in HIGHER or spread))
        )

    def hear(self, record: Mapping[str, Any]) -> str:
        """The next record; returns why the run is over, or nothing."""
        if "objective" not in record:
            return ""
        name = self._options.measure
        if name not in record:
            raise ConfigError(f"stop.measure is {name!r}, which is not recorded; there are {', '.join(record)}.")
        value = self._sign * float(record[name])
        if value > self._best + self._options.least:
            self._best, self._round, self._since = value, record["round"], 0
            return ""
        self._since += 1
        if self._since < self._options.patience:
            return ""
        return (
            f"Stopped early after round {record['round']}: in {self._since} evaluations {name} was not better than "
            f"{self._sign * self._best:.6g}, its value after round {self._round}."
        )
