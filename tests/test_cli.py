"""The command line as its users meet it: what it prints, what it writes, how it leaves."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fedcef import cli

UNCOMPRESSED_ZHANG = ["--set", "algorithm.name=zhang", "--set", "compressor.name=identity"]
TINY = ["--set", "rounds=3", "--set", "num_clients=4", "--set", "model.name=softmax"]


@pytest.fixture
def fedcef(monkeypatch, capsys):
    """The command line in this process, which saves importing torch anew for every call."""

    def call(*arguments, cwd=None):
        if cwd is not None:
            monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["fedcef", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=leaving.value.code or 0, stdout=printed.out, stderr=printed.err)

    return call


def sentence(result):
    """The error as one line; there is never a traceback."""
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def test_run_writes_a_folder_and_a_table(fedcef, tmp_path):
    result = fedcef("run", "demo", *TINY, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "accuracy" in result.stdout
    folder = tmp_path / "runs" / "demo-1"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["rounds"] == 3
    assert summary["dataset"] == "digits"
    assert {f.name for f in folder.iterdir()} == {
        "config.toml", "rounds.jsonl", "snapshot.safetensors", "round_log.bin", "model.safetensors", "summary.json",
    }  # fmt: skip

    again = fedcef("run", folder / "config.toml", "--out", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    repeated = json.loads((tmp_path / "again" / "summary.json").read_text())
    assert all(repeated[key] == summary[key] for key in summary.keys() - {"wall_s"})

    refused = fedcef("run", "demo", *TINY, "--out", tmp_path / "again")
    assert refused.returncode == 2
    assert "already holds a run" in sentence(refused)


def test_compare_then_plot(fedcef, tmp_path):
    out = tmp_path / "out"
    result = fedcef("compare", "demo", *TINY, "--out", out)
    assert result.returncode == 0, result.stderr
    for label in ("FedCEF r=0.1", "FedCEF r=0.01", "Zhang et al.", "FedDA", "FedCanon"):
        assert label in result.stdout
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "report.html").stat().st_size > 100_000
    stamp = (out / "fedda" / "summary.json").stat().st_mtime_ns
    again = fedcef("compare", "demo", *TINY, "--out", out)
    assert again.returncode == 0, again.stderr
    assert (out / "fedda" / "summary.json").stat().st_mtime_ns == stamp  # finished runs are kept
    other = fedcef("compare", "demo", "--set", "rounds=4", "--out", out)
    assert other.returncode == 2
    assert "other settings" in sentence(other)

    plotted = fedcef("plot", out, "--tradeoff", "--out", tmp_path / "plot")
    assert plotted.returncode == 0, plotted.stderr
    assert (tmp_path / "plot" / "figure.pdf").exists()
    assert (tmp_path / "plot" / "tradeoff.png").read_bytes().startswith(b"\x89PNG")
    assert fedcef("plot", out / "fedda", out / "fedcanon", "--out", tmp_path / "two").returncode == 0


def test_the_installed_command_never_shows_a_traceback(tmp_path):
    command = [sys.executable, "-m", "fedcef.cli", "run", "demo", "--set", "compressor.ratio=2"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert result.returncode == 2
    assert sentence(result) == "Error: compressor.ratio is 2; it must be less than or equal to 1."


def test_list_names_everything(fedcef):
    result = fedcef("list")
    assert result.returncode == 0
    for word in ("fedcef", "zhang", "topk", "elastic_net", "cifar10", "lasso", "dirichlet", "mnist_cnn", "demo"):
        assert word in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "dmo"], "There is no experiment 'dmo'; there are"),
        (["run", "missing.toml"], "There is no file missing.toml."),
        (["run"], "Give an experiment to run, or --resume"),
        (["run", "demo", "--set", "compressor.ratio=2"], "compressor.ratio is 2; it must be less than or equal to 1."),
        (["run", "demo", "--set", "compressor.ratio=tiny"], "compressor.ratio is 'tiny'; it must be a valid number"),
        (["run", "demo", "--set", "algorithm.name=fedsgd"], "algorithm.name is 'fedsgd'; it must be one of fedcef,"),
        (["run", "demo", "--set", "algorithm.mixin=1"], "Did you mean algorithm.mixing?"),
        (["run", "demo", "--set", "rouns=5"], "Did you mean rounds?"),
        (["run", "demo", "--set", "rounds=0"], "rounds is 0; it must be greater than or equal to 1."),
        (["run", "demo", "--set", "rounds"], "--set takes key=value"),
        (["run", "demo", "--set", "local_lr=-1"], "local_lr is -1; it must be greater than 0."),
        (["run", "demo", "--set", "device=tpu9"], "device is 'tpu9'; it must be"),
        (["run", "demo", "--set", "data.name=imagenet"], "data.name is 'imagenet'; it must be one of digits,"),
        (["run", "demo", "--set", "data.alpha=0"], "data.alpha is 0; it must be greater than 0."),
        (["run", "demo", "--set", "num_clients=5000"], "5000 clients"),
        (["run", "demo", "--set", "clients_per_round=11"], "must be between 1 and num_clients = 10."),
        (["run", "demo", "--set", "algorithm.name=zhang"], "no place for the compressor topk; add compressor.name="),
        (["run", "demo", *UNCOMPRESSED_ZHANG, "--set", "clients_per_round=2"], "needs all clients"),
        (["run", "demo", "--set", "regularizer.on=conv*"], "matches no parameter; there are"),
        (["run", "demo", "--set", "eval.evry=2"], "Did you mean eval.every?"),
        (["run", "--resume", "nowhere"], "holds no run to resume"),
        (["compare", "nothing.toml"], "There is no file nothing.toml."),
        (["plot", "nowhere"], "There are no runs to plot"),
        (["data", "get", "imagenet"], "imagenet"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_get_one_sentence_and_exit_code_2(fedcef, tmp_path, arguments, says):
    result = fedcef(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert says in sentence(result)
    assert not list(tmp_path.rglob("summary.json"))


def test_a_missing_data_set_names_the_command(fedcef, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCEF_DATA", str(tmp_path))
    result = fedcef("run", "demo", "--set", "data.name=mnist", cwd=tmp_path)
    assert result.returncode == 2
    assert "fedcef data get mnist" in sentence(result)


def test_a_diverging_run_leaves_with_3(fedcef, tmp_path):
    result = fedcef("run", "demo", *TINY, "--set", "local_lr=1e38", cwd=tmp_path)
    assert result.returncode == 3
    assert "diverged" in sentence(result)
