"""A slice of the fault suite (`make faults`, docs/reliability.md): the same apps, plan and checks."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

sys.path.append(str(Path(__file__).parents[2]))  # where faults/ is

from faults import plan as kinds
from faults.checks import Watch
from faults.client import app as faulty_client_app
from faults.plan import Event, Plan, make_plan
from faults.play import deployed_settings, play
from faults.server import serve_with_faults

from .in_process import InProcessGrid

PAGE = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text("utf-8")
COUNTED = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \| \d+ \| \d+ \|$", PAGE, re.MULTILINE))
"""The reasons that docs/reliability.md gives, by fault."""


def test_the_page_lists_all_faults():
    assert tuple(COUNTED) == kinds.KINDS


def test_the_plan_has_everything_and_comes_from_its_seed():
    plan = make_plan(1, 30, 4)
    assert plan == make_plan(1, 30, 4) != make_plan(2, 30, 4)
    assert len(plan) >= 200
    assert {event.kind for event in plan} == set(kinds.KINDS)
    steps = {event.point for event in plan if event.client is None}
    assert len(steps & {*kinds.STEPS, *kinds.WRITES}) == len(kinds.STEPS) + len(kinds.WRITES)


def test_a_fault_happens_once_and_in_its_turn(tmp_path):
    events = [Event(0, "cut reply", 1, 0), Event(1, "flip reply", 1, 0), Event(2, "drop reply", 0, 1)]
    plan, other = Plan.write(tmp_path / "plan", 1, 5.0, events), Plan(tmp_path / "plan")
    assert plan.next(0, round_=0) is None
    assert plan.next(0, round_=3) == events[0]
    assert plan.claim(events[0], 3)
    assert not other.claim(events[0], 3)
    assert other.next(0, round_=3) == events[1]
    assert plan.next(None, round_=9) is None
    assert {event.id: what["round"] for event, what in other.happened().items()} == {0: 3}


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Plays events in one process, where nobody can be killed; returns what a watch has seen."""
    monkeypatch.setenv("FEDCEF_FAULTS", str(tmp_path / "all"))

    def call(rounds, events):
        settings = deployed_settings(rounds, 1.0)
        (tmp_path / "experiment.toml").write_text(settings.to_toml())
        watch = Watch(tmp_path / "all", settings, Plan.write(tmp_path / "all", 1, 1.0, events))
        run_config = {"experiment": str(tmp_path / "experiment.toml"), "out": str(watch.run)}
        grid = InProcessGrid(faulty_client_app, run_config, state=watch.folder / "states", clients=4)
        serve_with_faults(grid, 1, run_config, watch.plan)
        watch.finished()
        return watch

    return call


def test_messages_and_disks_with_faults(played):
    """Every kind twice; a run with faults is the simulated one with those clients that were accepted."""
    some = [kind for kind in kinds.CLIENT if "kill" not in kind and "too slow" not in kind]
    events = [Event(i, kind, 1 + i // 4, i % 4) for i, kind in enumerate(some + some[::-1])]
    watch = played(14, events)
    assert watch.violations == []
    assert all(watch.bits.values())
    assert len(watch.plan.happened()) == len(events)
    expected = [set(COUNTED[kind].split(" or ")) - {"–"} for kind in some]
    assert all(not reasons or reasons & watch.refused().keys() for reasons in expected)
    assert watch.refused().keys() <= set().union(*expected)


def test_play_may_pause_and_go_on(played):
    """What was seen before is known afterwards, and a pause is no death without a cause."""
    watch = played(3, [])
    watch.gaps, watch.restarts, watch.recoveries = [1e-8], 2, {}
    watch.server_died(paused=True)
    watch.save()
    again = Watch(watch.folder, watch.settings, watch.plan)
    again.load()
    assert (again.gaps, again.frames, again.restarts, again.deaths) == (watch.gaps, watch.frames, 2, 0)
    assert again.violations == []
    again.server_died()
    assert again.violations == ["The server died in round 3, by 0 faults."]


def test_the_checks_see_what_is_wrong(played):
    watch = played(4, [])
    assert watch.violations == []
    history = [json.loads(line) for line in (watch.folder / "history.jsonl").read_text().splitlines()]
    del history[0]["members"]["3"]
    (watch.folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history))
    watch.finished()
    assert "The records count other clients than took part." in watch.violations
    assert "The replica is not the simulator's." in watch.violations

    watch.violations.clear()
    watch.frames |= {0: "another", 9: "and one that is gone"}
    watch.server_died()
    assert "Round 0 was logged, and is another one now." in watch.violations
    assert "A round is missing." in watch.violations


@pytest.mark.flower
def test_real_processes_really_killed(tmp_path):
    """Every way to kill a node, and the server twice."""
    settings = deployed_settings(5, 60.0)
    nodes = [(kind, 1 + i // 3, i % 3, "synced" if "saves" in kind else "") for i, kind in enumerate(kinds.NODE_KILLS)]
    server = [("between steps", 1, "after a reply"), ("while it writes", 2, "append round_log.bin, half written")]
    drawn = [*nodes, *((f"kill server {when}", round_, None, point) for when, round_, point in server)]
    events = [Event(i, *fields) for i, fields in enumerate(drawn)]
    watch = play(tmp_path / "all", 1, settings, events, print)
    assert watch.violations == []
    assert all(watch.bits.values())
    assert set(watch.plan.happened()) == set(events)
