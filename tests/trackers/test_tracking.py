"""Trackers hear of every round once, and whatever they do, the run goes on."""

import re
import sys
import tomllib

import pytest

from fedcef import trackers
from fedcef.cli import main as cli
from fedcef.core.errors import ConfigError, DivergedError
from fedcef.core.extras import install_extra
from fedcef.trackers import Tracking, flatten_settings, open_trackers, pick_numbers

from .setting import CONFIG, Fake, play, records, summary


def test_a_run_from_start_to_end(tmp_path):
    one, other = Fake(), Fake()
    assert play(tmp_path / "run", {"one": one, "other": other}) == []
    assert [call for call, _ in one.heard] == ["start", *7 * ["record"], "finish"]
    config, folder = one.heard[0][1]
    assert config == tomllib.loads(CONFIG.to_toml())
    assert folder == tmp_path / "run"
    assert [what for _, what in one.heard[1:-1]] == records(tmp_path / "run")
    assert one.heard[-1][1] == summary(tmp_path / "run")
    assert other.heard == one.heard


@pytest.mark.parametrize("call", ["start", "record", "finish"])
def test_a_tracker_that_fails_is_told_once_and_left_out(tmp_path, call):
    bad, good = Fake(fails_in=call), Fake()
    said = play(tmp_path / "run", {"bad": bad, "good": good})
    assert said == [f"bad failed and is left out from here on: OSError: no {call} today"]
    assert bad.heard[-1][0] == call
    assert good.rounds == list(range(7))
    assert summary(tmp_path / "run")["status"] == "finished"


def test_an_interrupted_run_is_gone_on_with(tmp_path):
    first, second = Fake(), Fake()
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", {"fake": first}, stop_after=5)
    assert first.rounds == [0, 1, 2, 3, 4, 5]
    assert first.heard[-1] == ("finish", {})  # it may go on
    play(tmp_path / "run", {"fake": second}, resume=True)
    assert second.rounds == [6]  # no round is lost, and none comes twice
    assert second.heard[-1][1]["status"] == "finished"


def test_a_run_that_was_interrupted_after_its_last_round_is_finished_for_its_trackers(tmp_path):
    first, second, third = Fake(), Fake(), Fake()
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", {"fake": first}, stop_after=6)
    assert first.heard[-1] == ("finish", {})
    play(tmp_path / "run", {"fake": second}, resume=True)
    assert second.rounds == [6]
    assert second.heard[-1] == ("finish", summary(tmp_path / "run"))
    play(tmp_path / "run", {"fake": third}, resume=True)
    assert third.heard == []  # it was over before


def test_a_diverged_run_has_a_summary(tmp_path):
    fake = Fake()
    with pytest.raises(DivergedError):
        play(tmp_path / "run", {"fake": fake}, CONFIG.model_copy(update={"local_lr": 1e38}))
    assert fake.heard[-1][1]["status"] == "diverged"


def test_a_run_that_never_began_is_not_tracked(tmp_path):
    fake = Fake()
    Tracking({"fake": fake}, tmp_path / "run", print).finish(over=False)
    assert fake.heard == []
    assert not (tmp_path / "run").exists()


def test_a_round_that_comes_again_is_passed_on_once(tmp_path):
    play(tmp_path / "run", {})
    fake = Fake()
    tracking = Tracking({"fake": fake}, tmp_path / "run", print)
    for round_ in (0, 1, 2, 1, 2, 3):
        tracking.record({"round": round_})
    assert fake.rounds == [0, 1, 2, 3]


def test_what_is_a_number():
    given = {"a": 1, "b": 0.5, "c": None, "d": "x", "e": float("nan"), "f": {"late": 1}, "g": True, "h": 10**400}
    assert pick_numbers(given) == {"a": 1.0, "b": 0.5}


def test_settings_by_their_dotted_names():
    flat = flatten_settings(tomllib.loads(CONFIG.to_toml()))
    assert flat["compressor.ratio"] == 0.2
    assert flat["eval.every"] == 2
    assert flat["rounds"] == 6
    assert flatten_settings({"compare": [1], "reference": [2], "a": {"compare": 3}}) == {"a.compare": 3}


def test_names_are_checked_before_any_work(monkeypatch):
    with pytest.raises(ConfigError, match="There is no tracker 'excel'; there are tensorboard, mlflow, wandb"):
        open_trackers(["excel"])
    for name, package in (("tensorboard", "tensorboard"), ("mlflow", "mlflow.tracking"), ("wandb", "wandb")):
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
        with pytest.raises(ConfigError, match=re.escape(install_extra(name))):
            open_trackers([name])


def test_the_command_line(tmp_path, monkeypatch, capsys):
    made = []

    class Kept(Fake):
        def __init__(self):
            super().__init__(fails_in="record" if made else "")
            made.append(self)

    monkeypatch.setattr(trackers, "TRACKERS", {"good": Kept, "bad": Kept})
    (tmp_path / "tiny.toml").write_text(CONFIG.to_toml())
    command = ["run", tmp_path / "tiny.toml", "--out", tmp_path / "run", "--track", "good", "--track", "bad"]
    monkeypatch.setattr(sys, "argv", ["fedcef", *map(str, command)])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert not leaving.value.code
    assert made[0].rounds == list(range(7))
    assert capsys.readouterr().err.count("bad failed and is left out") == 1
    assert "track" not in (tmp_path / "run" / "config.toml").read_text()  # no setting of the run

    monkeypatch.setattr(sys, "argv", ["fedcef", "watch", str(tmp_path / "run"), "--once", "--track", "good"])
    made.clear()
    with pytest.raises(SystemExit):
        cli.main()
    heard = [call for one in made for call, _ in one.heard]
    assert heard[:2] == ["start", "record"]
