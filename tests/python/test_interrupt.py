"""Ctrl-C on real processes: the run is left whole, the words on the screen say how to go on, and they are right."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from fedcef import History
from fedcef.cli import main as cli

SLOW = """
rounds = 25
num_clients = 3
local_steps = 30
local_lr = 0.01
snapshot_every = 1
[data]
name = "digits"
[[compare]]
label = "one"
[[compare]]
label = "two"
set = { local_lr = 0.02 }
"""
FROM_PYTHON = """
import sys
import fedcef
from fedcef.runs.experiments import load_settings

problem = load_settings("slow.toml").build_problem()
method = fedcef.FedCEF(local_lr=0.01, local_steps=30)
fedcef.run(problem, method, rounds=25, eval_every=1, snapshot_every=1, out="out", resume="resume" in sys.argv)
"""
FEDCEF = [sys.executable, "-m", "fedcef"]


def interrupted(command, folder, pattern="out*/**/rounds.jsonl"):
    """Start a process group, press Ctrl-C after a few rounds, and wait; (exit code, standard error)."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 240
        while not any(path.read_bytes().count(b"\n") >= 3 for path in folder.glob(pattern)):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        _, printed = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, printed


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "slow.toml").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "slow.toml", "--out", "out"],
        ["compare", "slow.toml", "--out", "out"],
        ["sweep", "slow.toml", "--set", "seed=[0,1]", "--only", "one", "--jobs", "2", "--out", "out"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_the_command_that_is_named_goes_on(folder, monkeypatch, arguments):
    code, printed = interrupted([*FEDCEF, *arguments], folder)
    assert code == 130
    assert "Traceback" not in printed
    line = next(line for line in printed.splitlines() if line.startswith("Interrupted"))
    command = shlex.split(line.partition("Resume with: ")[2])
    done = {path: path.read_text() for path in folder.glob("out/**/rounds.jsonl")}
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert not leaving.value.code
    for path, lines in done.items():
        now = path.read_text()
        assert now.count("\n") == 26
        if lines.count("\n") < 3:
            continue  # another job, which had no snapshot but of its start: it begins anew
        assert now.startswith(lines[: lines.rfind("\n", 0, -1) + 1])  # what was done is kept, not done again


def test_a_run_from_python_says_how_to_go_on(folder):
    (folder / "mine.py").write_text(FROM_PYTHON)
    code, printed = interrupted([sys.executable, "mine.py"], folder)
    assert code != 0
    assert printed.rstrip().endswith("Interrupted.  Resume with the same call and resume=True; the run is in out.")
    before = History.load("out").records
    subprocess.run([sys.executable, "mine.py", "resume"], check=True, timeout=240)
    after = History.load("out")
    assert after.last["round"] == 25
    assert after.records[: len(before) - 1] == before[:-1]
