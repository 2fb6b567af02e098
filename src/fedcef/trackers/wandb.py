"""Weights & Biases: an offline run in RUN/wandb, to be sent by `wandb sync` or not at all.

WANDB_MODE=online, where it is set, sends at once.  A run that is tracked again keeps its id.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcef.core.extras import needed
from fedcef.trackers.tracker import flatten_settings, pick_final, pick_numbers, title_of


class WeightsAndBiases:
    """Writes a run to Weights & Biases."""

    def __init__(self) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._package = needed("wandb", "--track wandb", "wandb")

    def start(self, config: Mapping[str, Any], folder: Path) -> None:
        """Begin a run, or go on with the one that was tracked before."""
        mode = os.environ.get("WANDB_MODE", "offline")
        # only what the run says of itself: no code, no console, no repository, no machine's load
        options = {"console": "off", "silent": True, "disable_git": True, "save_code": False, "x_disable_stats": True}
        self._run = self._package.init(
            project=str(config.get("name") or "fedcef"),
            name=title_of(config, folder),
            dir=str(folder),
            id=_known(folder),
            resume=None if mode == "offline" else "allow",
            mode=mode,
            config=flatten_settings(config),
            settings=self._package.Settings(**options),
        )

    def record(self, record: Mapping[str, Any]) -> None:
        """Log a round."""
        self._last = record
        self._run.log(pick_numbers(record), step=record["round"])

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Log what only the summary knows, and end the run."""
        self._run.summary.update(pick_final(summary, self._last))
        self._run.finish(exit_code=0 if summary.get("status") == "finished" else 1)


def _known(folder: Path) -> str | None:
    """The id of a run that was tracked before; its folders end in it."""
    before = sorted((folder / "wandb").glob("*run-*-*/"))
    return before[-1].name.rpartition("-")[2] if before else None
