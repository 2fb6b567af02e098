"""fedcef watch, as its users meet it."""

import os
import signal
import subprocess
import sys
from threading import Timer

import pytest

from fedcef.cli import main as cli
from fedcef.watch import live

from .setting import Growing


@pytest.fixture
def watch(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedcef", "watch", *map(str, arguments)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        return leaving.value.code or 0, *capsys.readouterr()

    return call


def test_once(watch, tmp_path):
    code, out, _ = watch(Growing(tmp_path / "run").rounds(0, 1, 2).folder, "--once")
    assert code == 0
    assert "FedCEF  running" in out
    assert "2 of 20" in out


def test_it_ends_with_the_run(watch, tmp_path, monkeypatch):
    run, naps = Growing(tmp_path / "run").rounds(0), iter(range(1, 22))

    def nap(seconds):
        """While it waits, the run goes on."""
        number = next(naps)
        run.rounds(number) if number <= 20 else run.end()

    monkeypatch.setattr(live.time, "sleep", nap)
    code, out, _ = watch(run.folder)
    assert code == 0
    assert out.count("FedCEF  finished") == 1
    assert out.endswith("\n")
    assert "20 of 20" in out
    assert next(naps, None) is None


def test_ctrl_c(watch, tmp_path, monkeypatch):
    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(live.time, "sleep", interrupted)
    run = Growing(tmp_path / "run").rounds(0, 1)
    code, out, _ = watch(run.folder)
    assert code == 130
    assert "FedCEF  running" in out
    assert out.endswith("\n")
    assert watch(run.end().folder, "--serve")[0] == 0  # nothing was left to see


def test_a_real_interruption_leaves_no_traceback(tmp_path):
    run = Growing(tmp_path / "run").rounds(0, 1)
    command = [sys.executable, "-m", "fedcef", "watch", str(run.folder), "--serve"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        stuck = Timer(300, process.kill)
        stuck.start()
        assert process.stdout.readline().startswith("Serving at http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        stuck.cancel()
    assert process.returncode == 130
    assert errors == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere is not there yet; start one with `fedcef run EXPERIMENT --out nowhere`, then watch it."),
        ([".", "--once", "--serve"], "give one of them"),
        ([".", "--port", "0"], "--port is for --serve"),
        ([".", "--track", "excel"], "There is no tracker 'excel'; there are tensorboard, mlflow, wandb."),
    ],
)
def test_mistakes(watch, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, _, errors = watch(*arguments)
    assert code == 2
    assert says in " ".join(errors.split())
