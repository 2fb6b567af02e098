"""The command as it is installed: another process, with its own standard output."""

import shlex
import subprocess
import sys

import click
import pytest
import typer

from fedcef import __version__
from fedcef.cli import front, main


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
    parts = result.stdout.partition("Train:")[2].partition("Examples:")[0]
    named = [line.split()[0] for line in parts.splitlines() if line.startswith("  ") and not line.startswith("   ")]
    assert " ".join(sorted(named)) == (
        "compare data deployment doctor export frontier list plot report run sweep theory version watch"
    )
    assert "..." not in parts  # no line is cut off in a terminal of 80 columns
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_parts_of_the_help_have_every_command_once():
    named = [name for names in front.PARTS.values() for name in names]
    assert sorted(named) == sorted(typer.main.get_command(main.app).commands)


@pytest.mark.parametrize("example", front.EXAMPLES)
def test_examples_of_the_help_are_commands(example):
    """They are read as the command line reads them, up to the point where work would begin."""
    name, *words = shlex.split(example)[1:]
    group = typer.main.get_command(main.app)
    group.commands[name].make_context(name, words)


def test_brackets_of_the_help_have_no_backslash():
    group = typer.main.get_command(main.app)
    for name, command in group.commands.items():
        text = command.get_help(command.context_class(command, info_name=name))
        assert "\\[" not in text
    assert "[required]" in group.commands["report"].get_help(click.Context(group.commands["report"]))


def test_the_version_is_an_option_too(tmp_path):
    assert fedcef("--version", cwd=tmp_path).stdout == fedcef("version", cwd=tmp_path).stdout == f"{__version__}\n"
