"""The command line in this process, which saves importing torch anew for every call."""

import sys
from dataclasses import dataclass

import pytest

from fedcef.cli import main as cli


@dataclass(frozen=True)
class Result:
    """How a command left and what it printed."""

    code: int
    out: str
    err: str

    @property
    def sentence(self):
        """The standard error as one line; there is never a traceback."""
        assert "Traceback" not in self.err
        return " ".join(self.err.split())


@pytest.fixture
def fedcef(monkeypatch, capsys, tmp_path):
    """Call the command line in an empty folder, without any data sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCEF_DATA", str(tmp_path / "cache"))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedcef", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        return Result(leaving.value.code or 0, *capsys.readouterr())

    return call
