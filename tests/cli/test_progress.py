"""What is seen of a run in progress: lines in a file, a bar on a terminal."""

import io
import re

import pytest
from rich.console import Console

from fedcef.cli import progress as module

TINY = ["--set", "num_clients=3", "--set", "model.name=softmax", "--out", "mine"]


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets; it starts at a time of day."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def lines(result):
    return [line for line in result.err.splitlines() if line.startswith("demo: ")]


def test_lines_on_standard_error_and_nothing_but_tables_on_standard_output(fedcef, monkeypatch):
    monkeypatch.setattr(module, "QUIET_S", 0.0)
    result = fedcef("run", "demo", *TINY, "--set", "rounds=3")
    assert result.code == 0, result.err
    first, *_, last = lines(result)
    assert len(lines(result)) == 4  # one for every round, and one for the start
    assert first.startswith("demo: round 0/3, accuracy ")
    assert last.startswith("demo: round 3/3, accuracy ")
    assert last.endswith(" rounds/s")
    assert "kB" in last
    assert "round 3/3" not in result.out


def test_a_fast_run_does_not_fill_the_file(fedcef, clock):
    result = fedcef("run", "demo", *TINY, "--set", "rounds=30")
    assert [line.split()[2] for line in lines(result)] == ["0/30,", "30/30,"]


def test_a_problem_without_accuracy_shows_its_objective(capsys, clock):
    from fedcef.runs.settings import Settings

    sent = {"wire_up_bytes": 1_000, "wire_down_bytes": 500}
    with module.progress(Settings(name="lasso", rounds=9)) as watch:
        watch({"round": 0, "objective": 1.25, **sent, "wall_s": 0.25})
        watch({"round": 1, "objective": 1.0, **sent, "wall_s": 0.5})
        clock.now += module.QUIET_S
        watch({"round": 2, **sent, "wall_s": 60.0})  # not evaluated, but it has been silent for a while
        watch({"note": "the ratio is now 0.5"})
    assert capsys.readouterr().err.splitlines() == [
        "lasso: round 0/9, objective 1.25, 1.50 kB, 0.2 s",
        "lasso: round 2/9, objective 1, 1.50 kB, 60.0 s, 0.4 rounds/s, 0:18 left",
        "the ratio is now 0.5",
    ]


def test_a_bar_in_80_columns_has_accuracy_bytes_speed_and_time_left(monkeypatch):
    from fedcef.runs.settings import Settings

    screen = Console(width=80, file=io.StringIO(), force_terminal=True, color_system=None)
    monkeypatch.setattr(module, "errors", screen)
    screen.get_time = iter(range(10**6)).__next__
    sent = {"wire_up_bytes": 123_400_000, "wire_down_bytes": 1_000_000}
    label = "FedCEF r=0.01, dense downlink, clipped"
    with module.progress(Settings(name="demo", label=label, rounds=400)) as watch:
        for n in range(0, 200, 50):
            watch({"round": n, "accuracy": 0.9389, **sent, "wall_s": n})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.file.getvalue()).replace("\r", "\n").splitlines()
    assert max(map(len, shown)) <= 80
    last = [line for line in shown if line.strip()][-1]
    assert re.match(r"FedCEF r=0.01, dens… \S+ +150/400 accuracy 93.9% 124 MB \S+ rounds/s \d+:\d\d", last), last
