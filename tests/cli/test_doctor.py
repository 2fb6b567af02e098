"""`fedcef doctor`: what is here, what is missing, and the command that fixes it."""

import json
from types import SimpleNamespace

from fedcef.cli import diagnosis as doctor
from fedcef.core.extras import install, install_extra


def found(result):
    return {(finding["group"], finding["name"]): finding for finding in json.loads(result.out)}


def test_a_whole_installation(fedcef):
    result = fedcef("doctor")
    assert result.code == 0
    assert "✓ python" in result.out
    assert result.out.rstrip().endswith("Ready to run.")
    findings = found(fedcef("doctor", "--json"))
    assert findings["Versions", "torch"]["status"] == "ok"
    assert findings["A run", "two rounds"]["status"] == "ok"
    assert findings["Data", "digits"]["status"] == "ok"
    assert findings["Data", "mnist"]["status"] == "missing"
    assert findings["Data", "mnist"]["remedy"] == "fedcef data get mnist"
    assert "fetch a9a and a9a.t by hand" in findings["Data", "a9a"]["remedy"]
    assert "GB free" in findings["Disk", "this folder"]["found"]


def test_damaged_data_are_found(fedcef, tmp_path):
    folder = tmp_path / "cache" / "mnist"
    folder.mkdir(parents=True)
    for name in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ):
        (folder / name).write_bytes(b"no images")
    finding = found(fedcef("doctor", "--json"))["Data", "mnist"]
    assert finding["status"] == "missing"
    assert "damaged" in finding["found"]


def test_what_is_broken_is_told_and_leaves_with_1(fedcef, monkeypatch):
    whole = doctor._version
    monkeypatch.setattr(
        doctor, "_version", lambda package: None if package in ("safetensors", "matplotlib") else whole(package)
    )

    def fails():
        raise RuntimeError("this torch cannot add")
        yield

    monkeypatch.setattr(doctor, "trial_run", fails)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    result = fedcef("doctor")
    assert result.code == 1
    told = " ".join(result.out.split())  # where a long command stands depends on how long it is
    assert f"✗ safetensors not installed → {install('safetensors')}" in told
    assert f"without matplotlib → {install_extra('plot')}" in told
    assert "RuntimeError: this torch cannot add" in result.out
    assert "make room" in result.out
    assert "to repair" in result.out


def test_a_terminal_of_80_columns_breaks_advice_between_words_and_commands_nowhere(fedcef, monkeypatch):
    from fedcef.cli import terminal

    monkeypatch.setattr(terminal.console, "_width", 80)
    lines = fedcef("doctor").out.splitlines()
    commands = [line for line in lines if " install " in line]
    assert max(len(line) for line in lines if line not in commands and "/" not in line) <= 80
    begin = next(i for i, line in enumerate(lines) if "fetch a9a and a9a.t by hand" in line)
    assert lines[begin].startswith("    →  ")
    assert lines[begin + 1].startswith("       ")
    assert not any(line != line.rstrip() for line in lines)
