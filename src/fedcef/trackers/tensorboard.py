"""TensorBoard: an event file in the run folder, so that the folder's name is the run's.

`tensorboard --logdir runs` then shows all runs below runs/.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcef.core.extras import needed
from fedcef.trackers.tracker import flatten_settings, pick_numbers

GROUPS = {"_bytes": "bytes", "_ratio": "ratio", "_s": "time"}
"""Names that end so are shown together; the others are measures."""


class TensorBoard:
    """Writes a run to TensorBoard."""

    def __init__(self) -> None:
        needed("tensorboard", "--track tensorboard", "tensorboard")
        self._package = needed("torch.utils.tensorboard", "--track tensorboard", "tensorboard")
        self._writer: Any = None

    def start(self, config: Mapping[str, Any], folder: Path) -> None:
        """Remember the run; its file begins with its first round."""
        self._config, self._folder = config, folder

    def record(self, record: Mapping[str, Any]) -> None:
        """Write a round as scalars, in groups by their names."""
        round_ = record["round"]
        if self._writer is None:
            # of a run that is tracked again, what was written before from this round on is void
            self._writer = self._package.SummaryWriter(str(self._folder), purge_step=round_)
            self._writer.add_text("settings", _table(flatten_settings(self._config)), round_)
        for name, value in pick_numbers(record).items():
            if name != "round":
                self._writer.add_scalar(f"{_group(name)}/{name}", value, round_)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary as a table, and close the file."""
        if summary:
            self._writer.add_text("summary", _table(flatten_settings(summary)), summary.get("rounds", 0))
        self._writer.close()


def _group(name: str) -> str:
    return next((group for ending, group in GROUPS.items() if name.endswith(ending)), "measures")


def _table(values: Mapping[str, Any]) -> str:
    """Markdown, as TensorBoard shows text."""
    rows = (f"| {name} | {json.dumps(value, ensure_ascii=False)} |" for name, value in values.items())
    return "\n".join(["| | |", "|---|---|", *(row.replace("<", "&lt;") for row in rows)])
