"""The command line as its users meet it: what it prints, what it writes, how it leaves."""

import csv
import json
from contextlib import contextmanager

from fedcef.cli import batch
from fedcef.runs.folder import RunFolder

TINY = ["--set", "rounds=3", "--set", "num_clients=4", "--set", "model.name=softmax"]


def test_run_writes_a_folder_and_a_table(fedcef, tmp_path):
    result = fedcef("run", "demo", *TINY)
    assert result.code == 0, result.err
    assert "accuracy" in result.out
    folder = tmp_path / "runs" / "demo-1"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["rounds"] == 3
    assert summary["dataset"] == "digits"
    assert {f.name for f in folder.iterdir()} == {
        "config.toml", "rounds.jsonl", "snapshot.bin", "round_log.bin", "model.safetensors", "summary.json",
        "facts.json",
    }  # fmt: skip

    again = fedcef("run", folder / "config.toml", "--out", tmp_path / "again")
    assert again.code == 0, again.err
    repeated = json.loads((tmp_path / "again" / "summary.json").read_text())
    assert all(repeated[key] == summary[key] for key in summary.keys() - {"wall_s"})

    refused = fedcef("run", "demo", *TINY, "--out", tmp_path / "again")
    assert refused.code == 2
    assert "already holds a run" in refused.sentence


def test_compare_then_plot(fedcef, tmp_path):
    out = tmp_path / "out"
    result = fedcef("compare", "demo", *TINY, "--out", out)
    assert result.code == 0, result.err
    for label in ("FedCEF r=0.1", "FedCEF r=0.01", "Zhang et al.", "FedDA", "FedCanon"):
        assert label in result.out
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "report.html").stat().st_size > 100_000
    stamp = (out / "fedda" / "summary.json").stat().st_mtime_ns
    again = fedcef("compare", "demo", *TINY, "--out", out)
    assert again.code == 0, again.err
    assert (out / "fedda" / "summary.json").stat().st_mtime_ns == stamp  # finished runs are kept
    other = fedcef("compare", "demo", "--set", "rounds=4", "--out", out)
    assert other.code == 2
    assert "other settings" in other.sentence

    plotted = fedcef("plot", out, "--tradeoff", "--out", tmp_path / "plot")
    assert plotted.code == 0, plotted.err
    assert (tmp_path / "plot" / "figure.pdf").exists()
    assert (tmp_path / "plot" / "tradeoff.png").read_bytes().startswith(b"\x89PNG")
    assert fedcef("plot", out / "fedda", out / "fedcanon", "--out", tmp_path / "two").code == 0


def test_sweep_then_again(fedcef, tmp_path):
    lists = ["--set", "seed=[0,1]", "--set", "local_lr=[0.03,0.06]", "--only", "FedCEF r=0.1"]
    dry = fedcef("sweep", "demo", *TINY, *lists, "--dry")
    assert dry.code == 0, dry.err
    assert "runs/demo-1/fedcef_r=0.1__local_lr=0.03__seed=0" in dry.out
    assert dry.out.count("new ") == 4
    assert not (tmp_path / "runs").exists()

    result = fedcef("sweep", "demo", *TINY, *lists)
    assert result.code == 0, result.err
    assert "4/4 done: FedCEF r=0.1, local_lr=0.06, seed=1 finished" in result.err
    assert "FedCEF r=0.1, local_lr=0.06" in " ".join(result.out.split())
    assert "2 seeds" in result.out
    assert "±" in result.out
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
    assert again.code == 0, again.err
    assert again.sentence == "4/4 done already"
    other = fedcef("sweep", "demo", *TINY, *lists, "--set", "batch_size=8", "--out", out)
    assert other.code == 2
    assert "other settings" in other.sentence


def test_sweep_in_two_processes_goes_on_after_a_failure(fedcef, tmp_path):
    (tmp_path / "tiny.toml").write_text("rounds = 2\nnum_clients = 3\n[data]\nname = 'lasso'\ndim = 20\nsupport = 4\n")
    lists = ["--set", "seed=[0,1]", "--set", "algorithm.mixing=[0.5,7,0.9]", "--jobs", "2"]
    result = fedcef("sweep", tmp_path / "tiny.toml", *lists, "--out", tmp_path / "out")
    assert result.code == 2
    assert "6/6 done" in result.err
    failed = (
        "Failed: tiny, algorithm.mixing=7, seed=0; tiny, algorithm.mixing=7, seed=1: algorithm.mixing is 7; it must"
    )
    assert failed in result.sentence
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
        stopped = fedcef(*command)
    assert stopped.code == 130
    assert stopped.sentence.endswith("--paper --out runs/sweep-1")
    assert "Interrupted, 1/2 done." in stopped.sentence
    assert not (tmp_path / "runs" / "sweep-1" / "summary.csv").exists()

    result = fedcef(*command, "--out", "runs/sweep-1")
    assert result.code == 0, result.err
    out = tmp_path / "runs" / "sweep-1"
    assert (out / "one" / "report.html").exists()
    assert (out / "two" / "two" / "summary.json").exists()
    assert (out / "paper_accuracy_digits.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "paper_train_loss_digits.pdf").exists()
    plotted = fedcef("plot", out, "--paper", "--out", tmp_path / "plot")
    assert plotted.code == 0, plotted.err
    assert (tmp_path / "plot" / "paper.html").exists()


def test_frontier_then_plot(fedcef, tmp_path):
    lists = ["--set", "seed=[0,1]", "--only", "uncompressed", "--only", "r=0.01 / 0.05, log3"]
    result = fedcef("frontier", "frontier_digits", *TINY, *lists, "--out", tmp_path / "out")
    assert result.code == 0, result.err
    assert "4/4 done" in result.err
    assert "●" in result.out
    for name in ("frontier.png", "frontier.pdf", "frontier.csv", "summary.csv", "report.html"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    rows = list(csv.DictReader((tmp_path / "out" / "frontier.csv").read_text().splitlines()))
    assert [(row["label"], row["seeds"]) for row in rows] == [("r=0.01 / 0.05, log3", "2"), ("uncompressed", "2")]
    again = fedcef("frontier", "frontier_digits", *TINY, *lists, "--out", tmp_path / "out")
    assert again.sentence == "4/4 done already"

    plotted = fedcef("plot", tmp_path / "out", "--frontier", "--references", "frontier_mnist", "--out", tmp_path / "p")
    assert plotted.code == 0, plotted.err
    assert "paper: uncompressed" in plotted.out
    assert (tmp_path / "p" / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_frontier_without_variants_takes_a_grid(fedcef, tmp_path):
    (tmp_path / "tiny.toml").write_text(
        "rounds = 1\nnum_clients = 2\n[data]\nname = 'digits'\n[model]\nname = 'softmax'\n"
    )
    result = fedcef("frontier", tmp_path / "tiny.toml", "--only", "r=0.1 log3, lossy 0.5", "--out", tmp_path / "out")
    assert result.code == 0, result.err
    assert "tiny has no [[compare]] entries; a default grid is used instead:" in result.out
    assert "r=0.01 uniform4, increment" in result.out
    assert "1/1 done" in result.err


def test_run_within_a_budget(fedcef, tmp_path):
    changes = ["--set", "rounds=12", "--set", "model.name=softmax"]
    result = fedcef("run", "demo", *changes, "--budget", "100kB", "--out", tmp_path / "run")
    assert result.code == 0, result.err
    assert "the ratio is now" in result.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert 90_000 <= summary["wire_up_bytes"] + summary["wire_down_bytes"] <= 100_000
    assert "budget = 100000" in (tmp_path / "run" / "config.toml").read_text()


def test_ctrl_c_before_anything_is_kept_offers_no_resume(fedcef, monkeypatch, tmp_path):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedcef.runs.run.run", stop)
    result = fedcef("run", "demo", *TINY, "--out", "run")
    assert result.code == 130
    assert result.sentence.endswith("Interrupted before the run began; nothing was kept.")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    monkeypatch.setattr("fedcef.runs.folder.RunFolder.new", lambda path: RunFolder(path))
    assert fedcef("run", "demo", *TINY, "--out", "run").sentence.endswith("Resume with: fedcef run --resume run")


def test_list_names_everything(fedcef):
    result = fedcef("list")
    assert result.code == 0
    names = ("fedcef", "zhang", "topk", "elastic_net", "cosine", "cifar10", "lasso", "dirichlet", "mnist_cnn", "demo")
    chosen = ("oracle", "layered", "store.name", "nonzeros", "network.preset", "data_centre", "async", "workers", "ray")
    for word in (*names, *chosen, "my_package.my_method:MyMethod"):
        assert word in result.out


def test_a_diverging_run_leaves_with_3(fedcef):
    result = fedcef("run", "demo", *TINY, "--set", "local_lr=1e38")
    assert result.code == 3
    assert "diverged" in result.sentence
