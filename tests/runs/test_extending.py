"""A run that is given more rounds is, bit for bit, the run that had them from the start."""

import json
import tomllib

import pytest

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.core.schedules import Cosine
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run

from .setting import SETTINGS, Killed, run_in, without_time


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(SETTINGS)
    return str(path)


def summary_without_time(folder):
    return {k: v for k, v in json.loads((folder / "summary.json").read_text()).items() if k != "wall_s"}


def assert_the_same(one, other):
    assert without_time(one) == without_time(other)
    assert summary_without_time(one) == summary_without_time(other)
    for file in ("config.toml", "snapshot.bin", "model.safetensors"):
        assert (one / file).read_bytes() == (other / file).read_bytes(), file


OPTIONS = {
    "the end was evaluated by itself": ["eval.every=3", "averaging=0.9"],
    "the end was evaluated on all samples": ["eval.every=1", "eval.train_samples=10", "local_schedule.name=step"],
    "a schedule with rounds of its own": ["local_schedule.name=cosine", "local_schedule.rounds=30"],
    "a network": ["network.preset=lte", "clients_per_round=2"],
    "adaptive": ["local_update.name=adamw", "local_update.memory=client", "local_update.warmup=5"],
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_an_extended_run_is_the_longer_one(tmp_path, settings, options):
    notes = []
    run_in(tmp_path / "whole", settings, *options, "rounds=11")
    run_in(tmp_path / "extended", settings, *options, "rounds=5")
    run_in(tmp_path / "extended", settings, *options, "rounds=11", notes=notes)
    assert_the_same(tmp_path / "extended", tmp_path / "whole")
    assert (tmp_path / "extended" / "facts.json").read_bytes() == (tmp_path / "whole" / "facts.json").read_bytes()
    assert notes == ["The run was made longer: it had 5 rounds, and has 11."]
    assert tomllib.loads((tmp_path / "extended" / "config.toml").read_text())["rounds"] == 11


def test_states_on_a_disk_and_several_extensions(tmp_path, settings):
    options = ["clients_per_round=2", "store.name=disk"]
    run_in(tmp_path / "whole", settings, *options, "rounds=9")
    for rounds in (1, 2, 7, 9):
        run_in(tmp_path / "extended", settings, *options, f"rounds={rounds}")
    assert without_time(tmp_path / "extended") == without_time(tmp_path / "whole")
    for file in ("config.toml", "model.safetensors"):
        assert (tmp_path / "extended" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_without_a_snapshot_it_is_computed_again(tmp_path, settings):
    notes = []
    run_in(tmp_path / "whole", settings, "snapshot_every=0")
    run_in(tmp_path / "extended", settings, "snapshot_every=0", "rounds=5")
    run_in(tmp_path / "extended", settings, "snapshot_every=0", notes=notes)
    assert without_time(tmp_path / "extended") == without_time(tmp_path / "whole")
    assert notes[1] == "There is no snapshot to go on from: all rounds are computed again."


@pytest.mark.parametrize("stop_after", [4, 5])
def test_a_run_that_was_cut_off_may_be_extended(tmp_path, settings, stop_after):
    run_in(tmp_path / "whole", settings, "rounds=7")
    with pytest.raises(Killed):
        run_in(tmp_path / "cut", settings, "rounds=5", stop_after=stop_after)
    run_in(tmp_path / "cut", settings, "rounds=7")
    assert_the_same(tmp_path / "cut", tmp_path / "whole")


class Dying(Disk):
    """A disk under a process that is killed before the n-th step of its writing."""

    def __init__(self, step):
        self.left = step

    def _step(self):
        self.left -= 1
        if not self.left:
            raise Killed

    def write(self, file, data):
        self._step()
        super().write(file, data)

    def sync(self, descriptor):
        self._step()
        super().sync(descriptor)

    def rename(self, part, path):
        self._step()
        super().rename(part, path)


def test_an_extension_may_be_killed_at_any_moment(tmp_path, settings):
    """In every step of its writing; then it is asked for again, or simply gone on with once the settings say so."""
    run_in(tmp_path / "whole", settings, "rounds=5", "eval.every=3")
    run_in(tmp_path / "short", settings, "rounds=4", "eval.every=3")
    begun = {file.name: file.read_bytes() for file in (tmp_path / "short").iterdir()}
    longer = load_settings(settings, ["rounds=5", "eval.every=3"])
    step, stages = 1, set()
    while True:
        folder = tmp_path / f"killed-{step}"
        folder.mkdir()
        for name, content in begun.items():
            (folder / name).write_bytes(content)
        try:
            run(longer, RunFolder(folder, Dying(step)), resume=True)
            break
        except Killed:
            pass
        rounds = tomllib.loads((folder / "config.toml").read_text())["rounds"]
        stages.add((rounds, (folder / "summary.json").exists()))
        said = load_settings(str(folder / "config.toml"))  # as `fedcef run --resume` has it
        if step % 2:
            assert run(said, RunFolder(folder), resume=True)["rounds"] == rounds
        run(longer, RunFolder(folder), resume=True)
        assert_the_same(folder, tmp_path / "whole")
        step += 1
    assert step > 15
    assert stages >= {(4, False), (5, False)}
    assert (4, True) not in stages  # at the first step the end is undone


def test_what_cannot_be_extended(tmp_path, settings):
    for number, (option, why) in enumerate(
        {
            "local_schedule.name=cosine": r"local_schedule \(unless it is given `rounds` of its own\) goes by",
            "server_schedule.name=cosine": "server_schedule",
            "budget=100kB": "budget goes by the number of rounds, so that the first 3 of 5 would be others",
        }.items()
    ):
        folder = tmp_path / str(number)
        run_in(folder, settings, option, "rounds=3")
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        with pytest.raises(RunError, match=why):
            run_in(folder, settings, option, "rounds=5")
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    adamw = ["local_update.name=adamw", "local_update.schedule=cosine"]
    run_in(tmp_path / "adamw", settings, *adamw, "rounds=3")
    with pytest.raises(RunError, match="the schedule of local_update goes by the number of rounds"):
        run_in(tmp_path / "adamw", settings, *adamw, "rounds=5")
    run_in(tmp_path / "stopped", settings, "stop.measure=objective", "stop.patience=1", "stop.least=1e9", "rounds=5")
    with pytest.raises(RunError, match="stopped early, and so would a longer one"):
        run_in(tmp_path / "stopped", settings, "stop.measure=objective", "stop.patience=1", "stop.least=1e9")
    run_in(tmp_path / "plain", settings, "rounds=5")
    with pytest.raises(RunError, match="has 5 rounds; it can be made longer, but not 4 rounds"):
        run_in(tmp_path / "plain", settings, "rounds=4")


def test_settings_that_were_changed_by_hand_are_looked_at_alike(tmp_path, settings):
    for options, allowed in ([[], True], [["local_schedule.name=cosine"], False]):
        folder = tmp_path / str(allowed)
        with pytest.raises(Killed):
            run_in(folder, settings, *options, "rounds=5", stop_after=4)
        config = folder / "config.toml"
        config.write_text(config.read_text().replace("rounds = 5\n", "rounds = 8\n"))
        longer = load_settings(str(config))
        if allowed:
            assert run(longer, RunFolder(folder), resume=True)["rounds"] == 8
        else:
            with pytest.raises(RunError, match=r"was changed since the run began: rounds was 5 and is 8"):
                run(longer, RunFolder(folder), resume=True)


def test_a_cosine_is_the_same_whatever_the_run_if_it_has_rounds_of_its_own():
    own, the_runs = Cosine(rounds=30), Cosine()
    assert own.for_rounds(5) is own
    assert the_runs.for_rounds(5) is not the_runs
