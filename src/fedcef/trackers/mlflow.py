"""MLflow: a store of files beside the run folder, mlruns/, for all runs there; no network.

MLFLOW_TRACKING_URI, where it is set, names another store or a server.  The run's id in MLflow is kept in its folder, so
that a run that is tracked again goes on there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcef.core.extras import needed
from fedcef.trackers.tracker import flatten_settings, pick_final, pick_numbers, title_of

ID_FILE = "mlflow_run_id.txt"
AT_ONCE = 100  # parameters that MLflow takes in one call
STATUS = {"finished": "FINISHED", "diverged": "FAILED"}


class MLflow:
    """Writes a run to MLflow."""

    def __init__(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else newer versions refuse one
        self._package = needed("mlflow.tracking", "--track mlflow", "mlflow")
        self._entities = needed("mlflow.entities", "--track mlflow", "mlflow")
        self._last = -1

    def start(self, config: Mapping[str, Any], folder: Path) -> None:
        """Begin a run in its experiment, or go on with the one whose id is kept in the folder."""
        store = os.environ.get("MLFLOW_TRACKING_URI") or (folder.resolve().parent / "mlruns").as_uri()
        self._client = self._package.MlflowClient(tracking_uri=store)
        known = folder / ID_FILE
        if known.is_file():
            self._run = known.read_text("utf-8").strip()
            self._last = int(self._client.get_run(self._run).data.metrics.get("round", -1))
            self._client.update_run(self._run, status="RUNNING")
        else:
            self._run = self._begin(config, folder)
            known.write_text(self._run + "\n", "utf-8")

    def record(self, record: Mapping[str, Any]) -> None:
        """Log a round, unless it was logged before."""
        self._record = record
        if record["round"] > self._last:
            self._log(pick_numbers(record), record["round"])

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Log what only the summary knows, and how the run ended."""
        if summary:
            self._log(pick_final(summary, self._record), summary["rounds"])
        self._client.set_terminated(self._run, STATUS.get(str(summary.get("status")), "KILLED"))

    def _begin(self, config: Mapping[str, Any], folder: Path) -> str:
        """A new run with its settings, in the experiment of its name."""
        client, name = self._client, str(config.get("name") or "fedcef")
        experiment = client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else client.create_experiment(name)
        run = str(client.create_run(number, run_name=title_of(config, folder)).info.run_id)
        params = [self._entities.Param(key, str(value)[:500]) for key, value in flatten_settings(config).items()]
        for start in range(0, len(params), AT_ONCE):
            client.log_batch(run, params=params[start : start + AT_ONCE])
        return run

    def _log(self, values: Mapping[str, float], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [self._entities.Metric(name, value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)
