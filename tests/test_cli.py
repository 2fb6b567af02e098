"""The command line as its users meet it: what it prints, what it writes, how it leaves."""

import csv
import json
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from fedcef.cli import batch
from fedcef.cli import main as cli

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
        "facts.json",
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


def test_sweep_then_again(fedcef, tmp_path):
    lists = ["--set", "seed=[0,1]", "--set", "local_lr=[0.03,0.06]", "--only", "FedCEF r=0.1"]
    dry = fedcef("sweep", "demo", *TINY, *lists, "--dry", cwd=tmp_path)
    assert dry.returncode == 0, dry.stderr
    assert "runs/demo-1/fedcef_r=0.1__local_lr=0.03__seed=0" in dry.stdout
    assert dry.stdout.count("new ") == 4
    assert not (tmp_path / "runs").exists()

    result = fedcef("sweep", "demo", *TINY, *lists, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "4/4 done: FedCEF r=0.1, local_lr=0.06, seed=1 finished" in result.stderr
    assert "FedCEF r=0.1, local_lr=0.06" in " ".join(result.stdout.split())
    assert "2 seeds" in result.stdout
    assert "±" in result.stdout
    out = tmp_path / "runs" / "demo-1"
    assert (out / "report.html").exists()
    rows = list(csv.DictReader((out / "summary.csv").read_text().splitlines()))
    assert [(row["seed"], row["local_lr"]) for row in rows] == [
        ("0", "0.03"),
        ("0", "0.06"),
        ("1", "0.03"),
        ("1", "0.06"),
    ]
    assert {row["status"] for row in rows} == {"finished"}
    summary = json.loads((out / rows[3]["folder"] / "summary.json").read_text())
    for measure in ("accuracy", "train_loss", "wire_up_bytes", "paper_down_bytes", "wall_s"):
        assert float(rows[3][measure]) == summary[measure]

    again = fedcef("sweep", "demo", *TINY, *lists, "--out", out)
    assert again.returncode == 0, again.stderr
    assert sentence(again) == "4/4 done before"
    other = fedcef("sweep", "demo", *TINY, *lists, "--set", "batch_size=8", "--out", out)
    assert other.returncode == 2
    assert "other settings" in sentence(other)


def test_sweep_in_two_processes_goes_on_after_a_failure(fedcef, tmp_path):
    (tmp_path / "tiny.toml").write_text("rounds = 2\nnum_clients = 3\n[data]\nname = 'lasso'\ndim = 20\nsupport = 4\n")
    lists = ["--set", "seed=[0,1]", "--set", "algorithm.mixing=[0.5,7,0.9]", "--jobs", "2"]
    result = fedcef("sweep", tmp_path / "tiny.toml", *lists, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "6/6 done" in result.stderr
    failed = (
        "Failed: tiny, algorithm.mixing=7, seed=0; tiny, algorithm.mixing=7, seed=1: algorithm.mixing is 7; it must"
    )
    assert failed in sentence(result)
    rows = csv.DictReader((tmp_path / "out" / "summary.csv").read_text().splitlines())
    assert [row["status"] for row in rows] == ["finished", "failed", "finished"] * 2


def test_sweep_over_experiments_draws_the_papers_figures(fedcef, tmp_path, monkeypatch):
    for name in ("one", "two"):
        text = "rounds = 2\nnum_clients = 3\n[data]\nname = 'digits'\n[model]\nname = 'softmax'\n"
        (tmp_path / f"{name}.toml").write_text(text)
    command = ["sweep", tmp_path / "one.toml", tmp_path / "two.toml", "--paper"]

    @contextmanager
    def interrupted(config):
        def watch(record):
            if config.name == "two" and record["round"] == 1:
                raise KeyboardInterrupt

        yield watch

    with monkeypatch.context() as patch:
        patch.setattr(batch, "progress", interrupted)
        stopped = fedcef(*command, cwd=tmp_path)
    assert stopped.returncode == 130
    assert sentence(stopped).endswith("--paper --out runs/sweep-1")
    assert "Interrupted, 1/2 done." in sentence(stopped)
    assert not (tmp_path / "runs" / "sweep-1" / "summary.csv").exists()

    result = fedcef(*command, "--out", "runs/sweep-1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    out = tmp_path / "runs" / "sweep-1"
    assert (out / "one" / "report.html").exists()
    assert (out / "two" / "two" / "summary.json").exists()
    assert (out / "paper_accuracy_digits.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "paper_train_loss_digits.pdf").exists()
    plotted = fedcef("plot", out, "--paper", "--out", tmp_path / "plot")
    assert plotted.returncode == 0, plotted.stderr
    assert (tmp_path / "plot" / "paper.html").exists()


def test_frontier_then_plot(fedcef, tmp_path):
    lists = ["--set", "seed=[0,1]", "--only", "uncompressed", "--only", "r=0.01 / 0.05, log3"]
    result = fedcef("frontier", "frontier_digits", *TINY, *lists, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "4/4 done" in result.stderr
    assert "●" in result.stdout
    for name in ("frontier.png", "frontier.pdf", "frontier.csv", "frontier.html", "summary.csv", "report.html"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    rows = list(csv.DictReader((tmp_path / "out" / "frontier.csv").read_text().splitlines()))
    assert [(row["label"], row["seeds"]) for row in rows] == [("r=0.01 / 0.05, log3", "2"), ("uncompressed", "2")]
    again = fedcef("frontier", "frontier_digits", *TINY, *lists, "--out", tmp_path / "out")
    assert sentence(again) == "4/4 done before"

    plotted = fedcef("plot", tmp_path / "out", "--frontier", "--references", "frontier_mnist", "--out", tmp_path / "p")
    assert plotted.returncode == 0, plotted.stderr
    assert "paper: uncompressed" in plotted.stdout
    assert (tmp_path / "p" / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_frontier_without_variants_takes_a_grid(fedcef, tmp_path):
    (tmp_path / "tiny.toml").write_text(
        "rounds = 1\nnum_clients = 2\n[data]\nname = 'digits'\n[model]\nname = 'softmax'\n"
    )
    result = fedcef("frontier", tmp_path / "tiny.toml", "--only", "r=0.1 log3, lossy 0.5", "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "tiny has no [[compare]] entries; a default grid takes their place:" in result.stdout
    assert "r=0.01 uniform4, increment" in result.stdout
    assert "1/1 done" in result.stderr


def test_run_within_a_budget(fedcef, tmp_path):
    changes = ["--set", "rounds=12", "--set", "model.name=softmax"]
    result = fedcef("run", "demo", *changes, "--budget", "100kB", "--out", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert "the ratio is now" in result.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert 90_000 <= summary["wire_up_bytes"] + summary["wire_down_bytes"] <= 100_000
    assert "budget = 100000" in (tmp_path / "run" / "config.toml").read_text()


def test_the_installed_command_never_shows_a_traceback(tmp_path):
    command = [sys.executable, "-m", "fedcef.cli.main", "run", "demo", "--set", "compressor.ratio=2"]
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
        (["run", "--resume", "nowhere", "--budget", "1GB"], "leave --set, --budget and --out away"),
        (["run", "demo", "--budget", "much"], "budget is 'much'; it must be a number of bytes such as 300MB or 1e9."),
        (["run", "demo", *UNCOMPRESSED_ZHANG, "--budget", "1GB"], "A budget chooses how many entries fedcef sends"),
        (["frontier", "demo", "--only", "FedSGD"], "There is no variant 'FedSGD' to keep by --only"),
        (["plot", "nowhere", "--frontier"], "There are no runs to plot"),
        (["compare", "nothing.toml"], "There is no file nothing.toml."),
        (
            ["sweep", "demo", "--only", "FedSGD"],
            "There is no variant 'FedSGD' to keep by --only; there are",
        ),
        (["sweep", "demo", "--set", "seed=[]"], "sweeps over nothing"),
        (["plot", "nowhere"], "There are no runs to plot"),
        (["plot", "nowhere", "--paper"], "There are no runs to plot"),
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
