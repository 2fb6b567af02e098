"""The real trackers, where their packages are installed: what was written is read back."""

import os
import sys
import time
from contextlib import suppress

import pytest

from fedcef.trackers import open_trackers

from .setting import play, records, summary

pytestmark = [
    pytest.mark.extras,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch):
    """Neither read here nor left behind."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("MLFLOW_", "WANDB_")):
            monkeypatch.delenv(name)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


def interrupted_and_resumed(path, *names):
    with pytest.raises(KeyboardInterrupt):
        play(path, open_trackers(names), stop_after=6)
    assert play(path, open_trackers(names), resume=True) == []


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = tmp_path / "run"
    interrupted_and_resumed(path, "tensorboard")
    events = EventAccumulator(str(path)).Reload()
    for tag, name in (("measures/objective", "objective"), ("bytes/wire_up_bytes", "wire_up_bytes")):
        written = [(event.step, event.value) for event in events.Scalars(tag)]
        assert written == [(r["round"], pytest.approx(r[name])) for r in records(path) if name in r]
    assert "time/wall_s" in events.Tags()["scalars"]
    (text,) = events.Tensors("settings/text_summary")[-1].tensor_proto.string_val
    assert b"| compressor.ratio | 0.2 |" in text
    (text,) = events.Tensors("summary/text_summary")[0].tensor_proto.string_val
    assert b'| status | "finished" |' in text


def test_mlflow(tmp_path):
    pytest.importorskip("mlflow.tracking")
    path = tmp_path / "runs" / "one"
    interrupted_and_resumed(path, "mlflow")
    play(tmp_path / "runs" / "two", open_trackers(["mlflow"]))

    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / "runs" / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("tiny")
    found = client.search_runs([experiment.experiment_id])
    assert len(found) == 2  # a resumed run is one run
    run = client.get_run((path / "mlflow_run_id.txt").read_text().strip())
    assert run.info.run_name == "Tiny one"
    assert run.info.status == "FINISHED"
    assert run.data.params["compressor.ratio"] == "0.2"
    assert run.data.metrics["parameters"] == summary(path)["parameters"]
    history = client.get_metric_history(run.info.run_id, "wire_up_bytes")
    assert sorted((m.step, m.value) for m in history) == [(r["round"], r["wire_up_bytes"]) for r in records(path)]


def test_wandb(tmp_path):
    pytest.importorskip("wandb")
    path = tmp_path / "run"
    interrupted_and_resumed(path, "wandb")
    folders = sorted((path / "wandb").glob("offline-run-*"))
    assert len({folder.name.rpartition("-")[2] for folder in folders}) == 1  # one run, to be synchronised as such
    assert {step for folder in folders for step in _steps(next(folder.glob("*.wandb")))} == set(range(7))


def _steps(file):
    """The rounds in a file of W&B, which another process may still be writing to."""
    for _ in range(600):
        with suppress(AssertionError):  # W&B's own, on half a record
            kinds, steps = _read(file)
            if "exit" in kinds:
                return steps
        time.sleep(0.1)
    raise AssertionError(f"{file} has no end")


def _read(file):
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store, found = DataStore(), []
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        found.append(wandb_internal_pb2.Record.FromString(data))
    store.close()
    kinds = [record.WhichOneof("record_type") for record in found]
    return kinds, [r.history.step.num for r, kind in zip(found, kinds, strict=True) if kind == "history"]


def test_they_are_imported_only_when_asked_for(tmp_path):
    play(tmp_path / "run", {})
    code = (
        "import fedcef.cli.main, sys; sys.exit(any(name in sys.modules for name in ('mlflow', 'wandb', 'tensorboard')))"
    )
    assert os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", code) == 0
