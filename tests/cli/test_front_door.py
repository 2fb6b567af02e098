"""The command as it is installed: another process, with its own standard output."""

import subprocess
import sys

import pytest


def fedcef(*arguments, cwd):
    """`python -m fedcef` in a process of its own."""
    command = [sys.executable, "-m", "fedcef", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


def test_a_mistake_is_one_sentence(tmp_path):
    result = fedcef("run", "demo", "--set", "compressor.ratio=2", cwd=tmp_path)
    assert result.returncode == 2
    assert " ".join(result.stderr.split()) == "Error: compressor.ratio is 2; it must be less than or equal to 1."
    assert result.stdout == ""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["version"]])
def test_help_does_not_wait_for_torch(tmp_path, arguments):
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch was imported')")  # found first by `python -m`
    result = fedcef(*arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_help_names_every_command(tmp_path):
    result = fedcef("--help", cwd=tmp_path)
    named = [line.split()[0] for line in result.stdout.partition("Commands:")[2].splitlines() if line.strip()]
    assert " ".join(sorted(named)) == (
        "compare data deployment doctor export frontier list plot report run sweep theory version watch"
    )
    assert "..." not in result.stdout.partition("Commands:")[2]  # no line is cut off in a terminal of 80 columns
