"""Run folders: what they hold, and that a run cut off at any moment goes on as if nothing had happened."""

import json
import multiprocessing
import signal
import time
import tomllib
from itertools import pairwise

import pytest
from safetensors.torch import load_file

from fedcef.algorithms import ALGORITHMS
from fedcef.core.errors import DivergedError
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import next_folder
from fedcef.wire import read_frames
from fedcef.wire.checkpoint import read_checkpoint

from .setting import SETTINGS, Killed, run_in, without_time


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SETTINGS)
    return str(path)


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


@pytest.mark.parametrize(
    ("name", "stop_after"), [*((name, 5) for name in ALGORITHMS), *(("fedcef", t) for t in (1, 3, 8))]
)
def test_resuming_equals_not_stopping(tmp_path, settings, name, stop_after):
    changes = [f"algorithm.name={name}"] + ([] if ALGORITHMS[name].compresses else ["compressor.name=identity"])
    whole = run_in(tmp_path / "whole", settings, *changes)
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", settings, *changes, stop_after=stop_after)
    resumed = run_in(tmp_path / "cut", settings, *changes)
    assert without_time(tmp_path / "cut") == without_time(tmp_path / "whole")
    for file in ("snapshot.bin", "model.safetensors"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
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


@pytest.mark.parametrize("store", ["table", "memory exact", "host bfloat16", "disk exact", "disk nonzeros"])
def test_kill_9_at_any_moment(tmp_path, settings, store):
    """Real processes, really killed, at moments spread over the life of a run."""
    # processes are forked from one that has loaded all modules, which takes longer than these runs
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedcef.runs.run", "fedcef.runs.experiments", "torch._dynamo"])
    name, _, code = store.partition(" ")
    changes = ["rounds=60", "snapshot_every=1", f"store.name={name}"]
    changes += ["clients_per_round=2", f"store.code={code}"] if code else []
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_in(whole, settings, *changes)
    kills = 0
    for moment in range(6):
        process = context.Process(target=run_in, args=(cut, settings, *changes))
        process.start()
        wanted = 10 * moment + 5  # lines written when the kill comes
        while process.is_alive():
            if (cut / "rounds.jsonl").exists() and (cut / "rounds.jsonl").read_bytes().count(b"\n") >= wanted:
                time.sleep(0.0007 * moment)
                process.kill()
                break
            time.sleep(0.0005)
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        if (cut / "summary.json").exists():
            break
    assert kills >= 4
    run_in(cut, settings, *changes)
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
    run_in(tmp_path / "cut", settings, notes=notes)
    assert any("not what was logged" in note for note in notes)


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


def test_a_run_diverges_whose_messages_no_longer_fit_their_code(tmp_path, settings):
    """A model in few bits must be below 2⁴⁰: numbers that no message can tell are no lesser end than infinite ones."""
    with pytest.raises(DivergedError, match=r"round \d+ cannot be told to the clients .* is .*\)\.  Try a smaller"):
        run_in(tmp_path / "run", settings, "local_lr=1.0", "rounds=100", "algorithm.downlink=snapshot")
    folder = RunFolder(tmp_path / "run")
    summary = json.loads(folder.summary.read_text())
    assert (summary["status"], summary["rounds"]) == ("diverged", folder.records()[-1]["round"] + 1)


def test_folders_are_numbered(tmp_path):
    assert next_folder(tmp_path, "demo") == tmp_path / "demo-1"
    (tmp_path / "demo-1").mkdir()
    assert next_folder(tmp_path, "demo") == tmp_path / "demo-2"


# A budget of bytes


DIGITS = """
rounds = 20
local_lr = 0.01
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
    for name in ("model.safetensors", "snapshot.bin"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_change_of_level_is_noted(tmp_path, digits):
    notes = []
    run_in(tmp_path / "run", digits, "budget=60kB", "budget_tilt=0.9", notes=notes)
    changes = [note for note in notes if "the ratio is now" in note]
    ratios = [record["up_ratio"] for record in without_time(tmp_path / "run")[1:]]
    assert len(changes) == sum(a != b for a, b in pairwise(ratios)) > 0


def test_without_a_budget_nothing_knows_of_it(tmp_path, digits):
    run_in(tmp_path / "run", digits, "budget=0")
    assert "budget" not in (tmp_path / "run" / "config.toml").read_text()
    _, kept = read_checkpoint(tmp_path / "run" / "snapshot.bin")
    assert not any(name.startswith("budget/") for name in kept)
    assert not any("up_ratio" in record for record in without_time(tmp_path / "run"))
