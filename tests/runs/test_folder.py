"""Run folders in which something is wrong: one sentence on what it is and what to do, and nothing is lost by trying."""

import errno
import shutil
import sys
from types import SimpleNamespace

import pytest
from safetensors.torch import save_file

from fedcef.cli import main as cli
from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.runs.folder import RunFolder, changes
from fedcef.runs.reader import RunReader
from fedcef.wire.checkpoint import read_checkpoint

from .setting import SETTINGS, Killed, run_in, without_time


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run of 8 rounds; and the same one, cut off after round 5 with a snapshot of round 3."""
    runs = tmp_path_factory.mktemp("runs")
    (runs / "tiny.toml").write_text(SETTINGS)
    run_in(runs / "whole", str(runs / "tiny.toml"))
    for name, moment in (("cut", 5), ("early", 1)):
        with pytest.raises(Killed):
            run_in(runs / name, str(runs / "tiny.toml"), stop_after=moment)
    return runs


@pytest.fixture
def runs(done, tmp_path):
    """Copies of them, to be damaged."""
    return shutil.copytree(done, tmp_path / "runs")


@pytest.fixture
def fedcef(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedcef", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return SimpleNamespace(code=leaving.value.code or 0, out=printed.out, said=" ".join(printed.err.split()))

    return call


def content(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def refused(fedcef, folder):
    """What is said by a command that goes on with a run, does not want to, and has changed nothing."""
    before = content(folder)
    result = fedcef("run", "--resume", folder)
    assert result.code == 2
    assert content(folder) == before
    return result.said


def assert_goes_on(fedcef, runs, name="cut"):
    result = fedcef("run", "--resume", runs / name)
    assert result.code == 0, result.said
    assert without_time(runs / name) == without_time(runs / "whole")
    assert RunFolder(runs / name).model.read_bytes() == RunFolder(runs / "whole").model.read_bytes()
    return result.said


def spoil(path, line, byte=b"\xff"):
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = byte + lines[line - 1][1:]
    path.write_bytes(b"".join(lines))
    return lines


# Snapshots


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.9, 0.999])
def test_a_flipped_bit_in_a_snapshot_is_noticed_and_removing_it_helps(fedcef, runs, share):
    path = runs / "cut" / "snapshot.bin"
    flipped = bytearray(path.read_bytes())
    flipped[int(share * len(flipped))] ^= 4
    path.write_bytes(flipped)
    said = refused(fedcef, runs / "cut")
    assert "snapshot.bin is damaged" in said
    assert "restore it from a copy, or remove it and go on" in said
    if share == 0.6:
        path.unlink()
        assert_goes_on(fedcef, runs)


def test_a_snapshot_of_an_earlier_version_is_gone_on_from(fedcef, runs):
    folder = RunFolder(runs / "cut")
    header, tensors = read_checkpoint(folder.snapshot)
    assert header["round"] == 3
    folder.snapshot.unlink()
    folder.old_snapshot.write_bytes(b"not a snapshot")
    assert "snapshot.safetensors is damaged" in refused(fedcef, runs / "cut")
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder.old_snapshot, {"round": "3"})
    before = folder.rounds.read_bytes().splitlines()[:4]
    assert_goes_on(fedcef, runs)
    assert folder.rounds.read_bytes().splitlines()[:4] == before  # not from the start
    assert folder.snapshot.exists()
    assert not folder.old_snapshot.exists()


def test_a_snapshot_of_another_problem_is_refused(runs):
    folder = RunFolder(runs / "cut")
    _, tensors = read_checkpoint(folder.snapshot)
    folder.save_snapshot(3, {**tensors, "replica/c": tensors["replica/c"][1:]})
    with pytest.raises(RunError, match=r"does not fit its config\.toml: replica/c differs"):
        run_in(runs / "cut", str(runs / "tiny.toml"))


# Records


def test_resuming_keeps_intact_records_byte_for_byte(fedcef, runs):
    before = RunFolder(runs / "cut").rounds.read_bytes().splitlines()
    assert len(before) == 6
    assert_goes_on(fedcef, runs)
    after = RunFolder(runs / "cut").rounds.read_bytes().splitlines()
    assert (after[:4], len(after)) == (before[:4], 9)


@pytest.mark.parametrize("byte", [b"\xff", b"["])
def test_a_bad_byte_costs_one_record_and_is_told(fedcef, runs, byte):
    folder = RunFolder(runs / "cut")
    before = spoil(folder.rounds, line=2, byte=byte)
    result = fedcef("run", "--resume", runs / "cut")
    assert result.code == 0
    assert "rounds.jsonl was damaged: line 2 could not be read." in result.said
    assert "rounds.jsonl has lost round 1; the run goes on without." in result.said
    after = folder.rounds.read_bytes().splitlines(keepends=True)
    assert after[:3] == [before[0], *before[2:4]]
    assert [record["round"] for record in folder.records()] == [0, *range(2, 9)]
    assert len(RunReader(runs / "cut").notes) == 2


def test_a_finished_run_is_never_touched(fedcef, runs):
    spoil(RunFolder(runs / "whole").rounds, line=2)
    before = content(runs / "whole")
    result = fedcef("run", "--resume", runs / "whole")
    assert result.code == 0
    assert "is finished; nothing was changed" in result.said
    assert "objective" in result.out
    assert content(runs / "whole") == before


def test_a_summary_that_is_damaged_is_not_guessed(fedcef, runs):
    (runs / "whole" / "summary.json").write_text('{"status": "fin')
    assert "summary.json is damaged; remove it to finish that run again" in refused(fedcef, runs / "whole")
    (runs / "whole" / "summary.json").unlink()
    before = RunFolder(runs / "whole").rounds.read_bytes()
    assert_goes_on(fedcef, runs, "whole")
    assert RunFolder(runs / "whole").rounds.read_bytes() == before


def test_lost_records_do_not_end_a_run(fedcef, runs):
    folder = RunFolder(runs / "cut")
    folder.rounds.unlink()
    folder.log.unlink()
    result = fedcef("run", "--resume", runs / "cut")
    assert result.code == 0
    assert "rounds.jsonl has lost rounds 0 to 2;" in result.said
    assert [record["round"] for record in folder.records()] == [3, 4, 5, 6, 7, 8]
    assert folder.model.read_bytes() == RunFolder(runs / "whole").model.read_bytes()


def test_a_round_log_that_is_no_log_can_be_removed(fedcef, runs):
    folder = RunFolder(runs / "cut")
    log = bytearray(folder.log.read_bytes())
    log[len(log) // 4] ^= 1
    folder.log.write_bytes(log)
    assert "round_log.bin is damaged" in refused(fedcef, runs / "cut")
    folder.log.unlink()
    assert_goes_on(fedcef, runs)


# Settings


@pytest.mark.parametrize("name", ["cut", "early"])
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seed = 0", "seed = 1", "config.toml was changed since the run began: seed was 0 and is 1."),
        ("local_lr = 0.01", "local_lr = 0.02", "local_lr was 0.01 and is 0.02."),
        ("ratio = 0.1", "ratio = 0.2", "compressor.ratio was 0.1 and is 0.2."),
        ("mixing = 0.5\n", "", "algorithm.mixing was 0.5 and is not set."),
    ],
)
def test_settings_that_were_changed_are_named(fedcef, runs, name, old, new, says):
    config = RunFolder(runs / name).config
    assert config.read_text().count(old) == 1
    config.write_text(config.read_text().replace(old, new))
    said = refused(fedcef, runs / name)
    assert says in said
    assert f"Change it back, or begin another run by `fedcef run {config} --out FOLDER`." in said


@pytest.mark.parametrize("name", ["cut", "early"])
def test_settings_that_were_lost_are_no_other_experiment(fedcef, runs, name):
    folder = RunFolder(runs / name)
    folder.config.write_text("")
    assert "config.toml is empty or damaged; restore it from a copy" in refused(fedcef, runs / name)
    folder.config.write_bytes(b"seed = '\xff'")
    assert "config.toml is not valid TOML" in refused(fedcef, runs / name)
    folder.config.unlink()
    assert "there is no config.toml in it" in refused(fedcef, runs / name)
    with pytest.raises(RunError, match=r"holds the rounds\.jsonl of a run that has lost its config\.toml"):
        RunFolder.new(runs / name)


def test_a_few_of_many_changes_are_named():
    begun = {"seed": 0, "label": "a", "eval": {"every": 1}, "data": {"name": "lasso", "dim": 40}}
    assert changes(begun, {**begun, "label": "b"}) == ""
    assert changes(begun, {"seed": 1}) == (
        "seed was 0 and is 1; eval.every was 1 and is not set; data.name was lasso and is not set; and 1 more"
    )


def test_settings_that_json_does_not_know_are_kept_in_snapshots(tmp_path):
    folder = RunFolder(tmp_path)
    folder.create('[data]\nname = "mine:data"\nsince = 2020-01-01\nlimit = nan\n')
    assert RunFolder(tmp_path).read_snapshot() is None
    folder.config.write_text(folder.config.read_text().replace("2020", "2021"))
    with pytest.raises(RunError, match=r"data\.since was 2020-01-01 and is 2021-01-01\.  Change it back"):
        RunFolder(tmp_path).read_snapshot()


def test_what_makes_no_other_experiment_may_be_changed(fedcef, runs):
    config = RunFolder(runs / "cut").config
    config.write_text(config.read_text().replace('label = ""', 'label = "mine"').replace("every = 3", "every = 4"))
    assert 'label = "mine"' in config.read_text()
    assert_goes_on(fedcef, runs)


# Who works on it


def test_two_processes_do_not_work_on_one_run(fedcef, runs):
    with RunFolder(runs / "cut").locked():
        said = refused(fedcef, runs / "cut")
    assert f"The run in {runs / 'cut'} is being worked on by process" in said
    assert_goes_on(fedcef, runs)
    with RunFolder(runs / "new").locked():
        result = fedcef("run", runs / "tiny.toml", "--out", runs / "new")
    assert result.code == 2
    assert "is being worked on by process" in result.said
    assert not (runs / "new" / "config.toml").exists()


def test_a_run_that_another_process_has_begun_is_not_begun_again(runs):
    first, second = RunFolder.new(runs / "new"), RunFolder.new(runs / "new")
    first.create(SETTINGS)
    with pytest.raises(RunError, match="already holds a run; go on with it by `fedcef run --resume"):
        second.create(SETTINGS)


def test_the_folder_of_a_deployment_is_left_to_it(fedcef, runs):
    (runs / "cut" / "run.json").write_text("{}")
    assert "is the folder of a deployment's server; go on with it there" in refused(fedcef, runs / "cut")


# Folders and disks


def test_folders_that_cannot_be_used(runs):
    with pytest.raises(RunError, match="already holds a run; go on with it by `fedcef run --resume"):
        RunFolder.new(runs / "cut")
    with pytest.raises(RunError, match=r"holds no run to resume; there is no config\.toml in it"):
        RunFolder.open(runs / "nowhere")
    with pytest.raises(RunError, match=r"cannot be written: .*; choose another --out"):
        RunFolder.new(runs / "tiny.toml" / "run").create(SETTINGS)


class FullDisk(Disk):
    def write(self, file, data):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_one_sentence_with_advice(runs):
    folder = RunFolder(runs / "cut", FullDisk())
    before = content(runs / "cut")
    writes = [
        lambda: folder.add_record({"round": 6}),
        lambda: folder.add_note(6, "Slow."),
        lambda: folder.save_snapshot(6, {}),
        lambda: folder.save_model({}, 6),
        lambda: folder.save_summary({}),
        lambda: folder.cut(3),
    ]
    for write in writes:
        with pytest.raises(
            RunError, match=f"No space left on device; .* go on with: fedcef run --resume {folder.path}"
        ):
            write()
    after = content(runs / "cut")
    assert {name: after[name] for name in before} == before
