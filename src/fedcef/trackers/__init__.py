"""Runs in TensorBoard, MLflow and Weights & Biases.

A tracker is one class in one file and one line here.  Its package is imported when it is asked for, and not before.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedcef.core.errors import ConfigError
from fedcef.trackers.mlflow import MLflow
from fedcef.trackers.tensorboard import TensorBoard
from fedcef.trackers.tracker import Tracker, flatten_settings, pick_numbers
from fedcef.trackers.tracking import Tracking, tracked
from fedcef.trackers.wandb import WeightsAndBiases

__all__ = ["TRACKERS", "Tracker", "Tracking", "flatten_settings", "open_trackers", "pick_numbers", "tracked"]

TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def open_trackers(names: Iterable[str]) -> dict[str, Tracker]:
    """New trackers by name; a package that is missing is told before any work."""
    trackers: dict[str, Tracker] = {}
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"There is no tracker {name!r}; there are {', '.join(TRACKERS)}.")
        trackers.setdefault(name, TRACKERS[name]())
    return trackers
