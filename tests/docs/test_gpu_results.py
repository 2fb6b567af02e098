"""The commands of the results that take a GPU: each is one that its command line takes, and means some runs."""

import sys
import tarfile
from itertools import pairwise

import pytest
from test_pages import DOCS
from typer.testing import CliRunner

from fedcef.cli.main import app
from fedcef.runs.experiments import load_settings

TOOLS = DOCS.parent / "tools"


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    import gpu_results

    yield gpu_results
    sys.modules.pop("gpu_results", None)


def test_sweeps_and_frontiers_mean_runs(tool, tmp_path):
    runs = {}
    for name in tool.RESULTS:
        for line in tool.command_lines(name, tmp_path, jobs=2):
            if line[3:4] in (["sweep"], ["frontier"]):
                words = [word for word in line[4:] if word != "--paper"]
                listed = CliRunner().invoke(app, ["sweep", *words, "--dry"])
                assert listed.exit_code == 0, (name, listed.output)
                runs[name] = runs.get(name, 0) + int(listed.output.splitlines()[-1].split()[0])
    assert runs["thousand"] == 15
    assert runs["unlike"] == 15
    assert min(runs.values()) >= 3


def test_whatever_is_no_sweep_is_there(tool, tmp_path):
    for name in tool.RESULTS:
        for line in tool.command_lines(name, tmp_path, jobs=1):
            if line[1] != "-m":
                assert (TOOLS.parent / line[1]).is_file()
            elif line[2] == "pytest":
                assert all((TOOLS.parent / word).exists() for word in line[4:])
        assert (DOCS / tool.RESULTS[name].page).is_file()


def test_the_settings_of_a_benchmark_are_settings(tool, tmp_path):
    for line in tool.command_lines("contexts", tmp_path, jobs=1):
        changes = [change for flag, change in pairwise(line) if flag == "--set"]
        settings = load_settings(line[2], changes)
        assert settings.down_compressor["ratio"] == settings.compressor["ratio"] == 0.015


def test_after_the_time_nothing_is_begun_and_nothing_removed(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool.subprocess, "Popen", lambda *args, **options: pytest.fail("it was begun"))
    earlier = tmp_path / "paper" / "0" / "rounds.jsonl"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("{}")
    tool.command_lines("paper", tmp_path, jobs=1)
    assert not tool.done("paper", tmp_path, jobs=1, ends=0.0)
    assert earlier.exists()


def test_what_is_kept_is_small(tool, tmp_path):
    run = tmp_path / "thousand" / "0" / "seed=21"
    run.mkdir(parents=True)
    for name in ("config.toml", "summary.json", "model.safetensors", "snapshot.bin"):
        (run / name).write_text("x")
    tool.collect(tmp_path)
    with tarfile.open(tmp_path / "results.tar.gz") as archive:
        assert sorted(archive.getnames()) == ["thousand/0/seed=21/config.toml", "thousand/0/seed=21/summary.json"]


def test_a_name_that_is_not_there(tool, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu_results.py", "resnet50"])
    with pytest.raises(SystemExit) as ended:
        tool.main()
    assert ended.value.code == 2
    assert "there is no 'resnet50'" in capsys.readouterr().err
