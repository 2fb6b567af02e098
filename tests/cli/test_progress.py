"""What is seen of a run whose output goes to a file."""

import pytest

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
    assert last.endswith(" s")
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
        "lasso: round 2/9, 1.50 kB, 60.0 s",
        "the ratio is now 0.5",
    ]
