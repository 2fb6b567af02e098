"""`fedcef doctor`: what is here, what is missing, and the command that fixes it."""

import json
import sys
from types import SimpleNamespace

import pytest

from fedcef.cli import completion
from fedcef.cli import diagnosis as doctor
from fedcef.cli import main as cli
from fedcef.runs.settings import Settings, experiments


@pytest.fixture
def fedcef(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCEF_DATA", str(tmp_path / "cache"))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedcef", *arguments])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        return SimpleNamespace(code=leaving.value.code or 0, out=capsys.readouterr().out)

    return call


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
    assert "✗ safetensors      not installed  →  pip install safetensors" in result.out
    assert "without matplotlib  →  pip install 'fedcef[plot]'" in result.out
    assert "RuntimeError: this torch cannot add" in result.out
    assert "make room" in result.out
    assert "to repair" in result.out


def test_experiments_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").touch()
    assert completion.experiment("") == [*sorted(experiments()), "mine.toml"]
    assert completion.experiment("mn") == ["mnist", "mnist_stability"]
    assert completion.experiment("mi") == ["mine.toml"]
    assert completion.experiment(f"{tmp_path}/") == [f"{tmp_path.as_posix()}/mine.toml"]


def test_settings_are_completed():
    keys = completion.setting("")
    assert {key.rstrip("=").removesuffix(".name") for key in keys} == set(Settings.model_fields)
    assert completion.setting("alg") == ["algorithm.name="]
    assert completion.setting("local_l") == ["local_lr="]


def test_the_shell_gets_completions(capsys, monkeypatch):
    for name, value in (
        ("_FEDCEF_COMPLETE", "complete_bash"),
        ("COMP_WORDS", "fedcef run fronti"),
        ("COMP_CWORD", "2"),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        cli.app(prog_name="fedcef")
    assert capsys.readouterr().out.split() == ["frontier_cifar10", "frontier_digits", "frontier_mnist"]
