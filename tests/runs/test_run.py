"""Run folders: what they hold, and that a run cut off at any moment goes on as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file

from fedcef.algorithms import ALGORITHMS
from fedcef.core.errors import DivergedError, RunError
from fedcef.runs.folder import RunFolder
from fedcef.runs.loop import next_folder, run
from fedcef.runs.settings import load_settings
from fedcef.wire import read_frames

SETTINGS = """
name = "tiny"
rounds = 8
num_clients = 4
local_steps = 3
batch_size = 8
snapshot_every = 3
eval.every = 2

[data]
name = "lasso"
dim = 40
samples = 20
support = 10

[regularizer]
name = "l1"
weight = 0.05

[algorithm]
name = "fedcef"
mixing = 0.5

[compressor]
name = "topk"
ratio = 0.1
"""


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SETTINGS + "\n")
    return str(path)


class Killed(BaseException):
    """Stands for a kill: nothing gets to clean up."""


def run_in(path, settings, *changes, stop_after=None):
    config = load_settings(settings, ["local_lr=0.01", *changes])

    def watch(record):
        if stop_after is not None and record.get("round") == stop_after:
            raise Killed

    if (path / "config.toml").exists():
        return run(config, RunFolder.open(path), resume=True, watch=watch)
    return run(config, RunFolder.new(path), watch=watch)


def without_time(folder):
    return [{k: v for k, v in record.items() if k != "wall_s"} for record in RunFolder(folder).records()]


def test_a_run_folder_is_complete(tmp_path, settings):
    summary = run_in(tmp_path / "run", settings)
    folder = RunFolder(tmp_path / "run")
    assert json.loads(folder.summary.read_text()) == summary
    for key in [
        "algorithm",
        "dataset",
        "seed",
        "rounds",
        "accuracy",
        "train_loss",
        "objective",
        "stationarity",
        "density",
        "wire_up_bytes",
        "wire_down_bytes",
        "paper_up_bytes",
        "paper_down_bytes",
        "wall_s",
        "versions",
    ]:
        assert key in summary
    assert summary["status"] == "finished"
    assert summary["rounds"] == 8
    assert tomllib.loads(folder.config.read_text())["algorithm"]["mixing"] == 0.5
    assert load_file(folder.model)["weight"].shape == (40,)
    records = folder.records()
    assert [record["round"] for record in records] == list(range(9))
    assert [record["round"] for record in records if "objective" in record] == [0, 2, 4, 6, 8]
    assert records[0]["wire_up_bytes"] == 0
    assert records[-1]["control_gap"] < 1e-5
    assert not list(folder.path.glob("*.part"))


def test_every_round_of_bytes_is_what_the_frames_weigh(tmp_path, settings):
    """With all clients listening, the downlink column grows by N times the logged frame."""
    run_in(tmp_path / "run", settings, "snapshot_every=100", "rounds=5")
    # the last snapshot empties the log, so look at a run that was cut off
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", settings, "snapshot_every=100", "rounds=5", stop_after=4)
    folder = RunFolder(tmp_path / "cut")
    frames, good = read_frames(folder.log.read_bytes())
    assert [frame.round for frame in frames] == [0, 1, 2, 3]
    assert 4 * good == folder.records()[-1]["wire_down_bytes"]


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("stop_after", [1, 3, 5, 8])
def test_resuming_equals_not_stopping(tmp_path, settings, name, stop_after):
    changes = [f"algorithm.name={name}"] + ([] if ALGORITHMS[name].compresses else ["compressor.name=identity"])
    whole = run_in(tmp_path / "whole", settings, *changes)
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", settings, *changes, stop_after=stop_after)
    resumed = run_in(tmp_path / "cut", settings, *changes)
    assert without_time(tmp_path / "cut") == without_time(tmp_path / "whole")
    a, b = (load_file(RunFolder(tmp_path / name).snapshot) for name in ("whole", "cut"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    for key in whole.keys() - {"wall_s"}:
        assert resumed[key] == whole[key]


@pytest.mark.parametrize("clients_per_round", [1, 2])
def test_resuming_with_some_of_the_clients(tmp_path, settings, clients_per_round):
    changes = [f"clients_per_round={clients_per_round}"]
    run_in(tmp_path / "whole", settings, *changes)
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", settings, *changes, stop_after=5)
    run_in(tmp_path / "cut", settings, *changes)
    assert without_time(tmp_path / "cut") == without_time(tmp_path / "whole")


def test_kill_9_at_any_moment(tmp_path, settings):
    """A real process, really killed, several times over, at moments spread over its life."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fedcef.cli.main", "run"]
    changes = ["--set", "rounds=60", "--set", "snapshot_every=1", "--set", "local_lr=0.01"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run(
        [*command, settings, *changes, "--out", str(whole)], env=environment, check=True, capture_output=True
    )

    arguments = [settings, *changes, "--out", str(cut)]
    kills = 0
    for moment in range(6):
        process = subprocess.Popen(
            [*command, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        rounds = cut / "rounds.jsonl"
        wanted = 10 * moment + 5  # lines written when the kill comes
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if rounds.exists() and rounds.read_bytes().count(b"\n") >= wanted:
                time.sleep(0.0007 * moment)
                process.send_signal(signal.SIGKILL)
                break
        kills += process.wait() == -signal.SIGKILL
        arguments = ["--resume", str(cut)]
        if (cut / "summary.json").exists():
            break
    assert kills >= 4
    subprocess.run([*command, "--resume", str(cut)], env=environment, check=True, capture_output=True)
    assert without_time(cut) == without_time(whole)
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_torn_lines_and_torn_frames_are_cut_off(tmp_path, settings):
    run_in(tmp_path / "whole", settings)
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", settings, stop_after=5)
    folder = RunFolder(tmp_path / "cut")
    with folder.rounds.open("a") as file:
        file.write('{"round": 6, "wire_')
    with folder.log.open("ab") as file:
        file.write(b"FCEF\x01")
    run_in(tmp_path / "cut", settings)
    assert without_time(tmp_path / "cut") == without_time(tmp_path / "whole")


def test_a_resumed_run_that_differs_from_its_log_says_so(tmp_path, settings):
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", settings, stop_after=5)
    with pytest.raises(Killed):
        run_in(tmp_path / "other", settings, "local_lr=0.02", stop_after=5)
    (tmp_path / "cut" / "round_log.bin").write_bytes((tmp_path / "other" / "round_log.bin").read_bytes())
    notes = []
    config = load_settings(settings, ["local_lr=0.01"])
    run(config, RunFolder.open(tmp_path / "cut"), resume=True, watch=lambda r: notes.append(r.get("note")))
    assert any(note and "not what was logged" in note for note in notes)


def test_a_diverging_run_stops_with_advice_and_a_summary(tmp_path, settings):
    with pytest.raises(DivergedError) as caught:
        run_in(tmp_path / "run", settings, "local_lr=1e6", "rounds=200")
    message = str(caught.value)
    assert "round " in message
    assert "local_lr (now 1e+06)" in message
    assert "clip_norm" in message
    summary = json.loads(RunFolder(tmp_path / "run").summary.read_text())
    assert summary["status"] == "diverged"
    assert summary["objective"] is None
    assert 0 < summary["rounds"] < 200


def test_folders_that_cannot_be_used(tmp_path, settings):
    run_in(tmp_path / "run", settings, "rounds=1")
    config = load_settings(settings)
    with pytest.raises(RunError, match="already holds a run; go on with it by `fedcef run --resume"):
        RunFolder.new(tmp_path / "run")
    with pytest.raises(RunError, match=r"holds no run to resume; there is no config\.toml in it"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunError, match="cannot be written"):
        RunFolder.new(tmp_path / "tiny.toml" / "run").create(config.to_toml())
    folder = RunFolder.open(tmp_path / "run")
    with pytest.raises(RunError, match=r"does not fit the run's config\.toml"):
        run(load_settings(settings, ["data.dim=41"]), folder, resume=True)
    folder.snapshot.write_bytes(b"not a snapshot")
    with pytest.raises(RunError, match="is damaged"):
        run(config, folder, resume=True)


def test_folders_are_numbered(tmp_path):
    assert next_folder(tmp_path, "demo") == tmp_path / "demo-1"
    (tmp_path / "demo-1").mkdir()
    assert next_folder(tmp_path, "demo") == tmp_path / "demo-2"


# A budget of bytes


DIGITS = """
rounds = 20
local_lr = 0.05
batch_size = 32
snapshot_every = 6
eval.every = 10
[data]
name = "digits"
[model]
name = "softmax"
[algorithm]
name = "fedcef"
mixing = 0.5
downlink = "lossy"
[compressor]
name = "topk"
ratio = 0.1
values = "uniform4"
"""


@pytest.fixture
def digits(tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text(DIGITS)
    return str(path)


def test_a_run_with_a_budget_ends_within_it_and_resumes_to_the_same_bits(tmp_path, digits):
    free = run_in(tmp_path / "free", digits)
    total = int(0.5 * (free["wire_up_bytes"] + free["wire_down_bytes"]))
    changes = [f"budget={total}", "budget_tilt=0.5"]
    whole = run_in(tmp_path / "whole", digits, *changes)
    assert 0.9 * total <= whole["wire_up_bytes"] + whole["wire_down_bytes"] <= total
    records = without_time(tmp_path / "whole")
    assert "up_ratio" not in records[0]
    assert all(record["up_ratio"] > 0 and record["down_ratio"] > 0 for record in records[1:])
    assert len({record["up_ratio"] for record in records[1:]}) > 1

    with pytest.raises(Killed):
        run_in(tmp_path / "cut", digits, *changes, stop_after=15)
    run_in(tmp_path / "cut", digits, *changes)
    assert without_time(tmp_path / "cut") == records
    for name in ("model.safetensors", "snapshot.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_change_of_level_is_noted(tmp_path, digits):
    notes = []
    config = load_settings(digits, ["budget=60kB", "budget_tilt=0.9"])
    run(config, RunFolder.new(tmp_path / "run"), watch=lambda record: notes.append(record.get("note")))
    changes = [note for note in notes if note and "the ratio is now" in note]
    ratios = [record["up_ratio"] for record in without_time(tmp_path / "run")[1:]]
    assert len(changes) == sum(a != b for a, b in pairwise(ratios)) > 0


def test_without_a_budget_nothing_knows_of_it(tmp_path, digits):
    run_in(tmp_path / "run", digits, "budget=0")
    assert "budget" not in (tmp_path / "run" / "config.toml").read_text()
    assert not any(name.startswith("budget/") for name in load_file(tmp_path / "run" / "snapshot.safetensors"))
    assert not any("up_ratio" in record for record in without_time(tmp_path / "run"))
