"""What the terminal shows."""

import json
import os
import time

import pytest
from rich.console import Console

from fedcef.runs.lock import locked
from fedcef.watch.follow import Followed
from fedcef.watch.screen import draw_screen
from fedcef.watch.words import draw_sparkline, format_duration, format_measure

from .setting import Growing


def shown(*runs, width=100):
    followed = [Followed(run.folder) for run in runs]
    for one in followed:
        one.update()
    console = Console(width=width, force_terminal=False, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(draw_screen(followed))
    return console.export_text()


def test_one_run(tmp_path):
    text = shown(Growing(tmp_path / "run").rounds(*range(11)))
    assert "FedCEF  running" in text
    assert "10 of 20   2 rounds/s   0:05 left" in text
    assert "▁▂▄▅▇█" in text
    assert "45.00%   best 45.00%" in text
    assert "0.2147   best 0.2147" in text
    assert "10.0 kB up   25.0 kB down" in text


def test_a_run_before_its_first_round(tmp_path):
    text = shown(Growing(tmp_path / "run"))
    assert "FedCEF  waiting" in text
    assert "0 of 20" in text


@pytest.mark.parametrize("status", ["finished", "diverged"])
def test_a_run_that_ended(tmp_path, status):
    text = shown(Growing(tmp_path / "run").rounds(*range(21)).end(status))
    assert f"FedCEF  {status}" in text
    assert "20 of 20   2 rounds/s   took 0:10" in text


def test_a_budget(tmp_path):
    assert "35% of the budget, 100 kB" in shown(Growing(tmp_path / "run", extra="budget = 100000").rounds(10))


def test_a_deployed_run(tmp_path):
    run = Growing(tmp_path / "run").rounds(
        0, 1, transport_up_bytes=5_250_000, transport_down_bytes=70, accepted=4, refused=1, reasons={"late": 1}
    )
    (run.folder / "refused.jsonl").write_text(json.dumps({"round": 0, "client": 3, "reason": "late"}) + "\n")
    text = shown(run)
    assert "5.25 MB up   70 B down" in text
    assert "last round: 4 accepted, 1 refused" in text
    assert "Round 0: the reply of client 3 was refused (late)." in text


def test_several_runs(tmp_path):
    runs = [Growing(tmp_path / str(seed), seed=seed).rounds(*range(5)) for seed in (0, 1)]
    text = shown(*runs, Growing(tmp_path / "x", label="FedDA").rounds(*range(21)).end(), width=120)
    lines = text.splitlines()
    for word in ("accuracy", "train loss", "up", "down", "rounds/s", "left"):
        assert word in lines[0]
    assert lines[1].split()[:5] == ["FedCEF,", "seed=0", "running", "4/20", "▁▅█"]
    assert lines[2].split()[-1] == "0:08"
    assert lines[3].split()[:3] == ["FedDA", "finished", "20/20"]
    assert lines[4] == "1 of 3 ended"


def test_a_narrow_terminal_keeps_names(tmp_path):
    names = [f"a rather long label of run {i}" for i in range(3)]
    lines = shown(*(Growing(tmp_path / name, name).rounds(*range(19)) for name in names), width=80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("a rather long")
    assert lines[1].split()[-1] == "0:01"
    assert "running" in lines[1]


def test_a_silent_run_is_told(tmp_path):
    run = Growing(tmp_path / "run").rounds(*range(5))
    long_ago = time.time() - 125
    os.utime(run.folder / "rounds.jsonl", (long_ago, long_ago))
    with locked(run.folder / "lock"):
        text = shown(run)
    assert "FedCEF  running" in text
    assert "FedCEF: no new round for 2:0" in text
    text = shown(run)  # nobody holds the lock: whoever did is dead, however that came
    assert "FedCEF  stopped" in text
    assert "FedCEF: no process works on it; its last round was 2:0" in text
    assert "left" not in text
    text = shown(run.end())
    assert "no new round" not in text
    assert "stopped" not in text


def test_runs_of_one_name_are_told_apart(tmp_path):
    runs = [Growing(tmp_path / name).rounds(*range(5)) for name in ("here", "there")]
    lines = shown(*runs, width=120).splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["FedCEF,", "seed=0", f"[{name}]"] for name in ("here", "there")
    ]


def test_text_from_files_is_only_text(tmp_path):
    run = Growing(tmp_path / "run", label="[red]a[/red]\x1b[31m\nb").rounds(0)
    (run.folder / "notes.jsonl").write_text(json.dumps({"round": 0, "note": "[link=x]\x1b]0;title\x07"}) + "\n")
    text = shown(run)
    assert "[red]a[/red] [31m b" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_words():
    assert draw_sparkline([], 8) == ""
    assert draw_sparkline([1.0], 8) == "▁"
    assert draw_sparkline([2.0, 2.0], 8) == "▁▁"
    assert draw_sparkline([0, 7], 8) == "▁█"
    assert draw_sparkline(range(800), 8) == "▁▂▃▄▅▆▇█"
    assert [format_duration(s) for s in (0, 59.6, 754, 3723)] == ["0:00", "1:00", "12:34", "1:02:03"]
    assert (format_measure("accuracy", 0.5), format_measure("gap", 1.23456e-9)) == ("50.00%", "1.235e-09")
