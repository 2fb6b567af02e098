"""Run folders of an earlier version open, report and resume, with the result that it had (old_runs/README.md)."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

from deployment.loopback import Loopback
from fedcef import L1, FedCEF, History, Problem, TopK, run
from fedcef.cli.main import app
from fedcef.runs.experiments import load_settings

OLD = Path(__file__).parent / "old_runs"
BY_COMMAND = ("finished", "interrupted", "budget", "cohort")
MADE_BY = ("2.13.0", "AVX512")  # torch's version and the processor's abilities: only the same have the same bits


@pytest.fixture
def old(tmp_path, request):
    """A copy of an old folder, named by the parameter."""
    return Path(shutil.copytree(OLD / request.param, tmp_path / request.param))


def fedcef(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result.output


def check(folder, name):
    """Whether a run came out as it did with the version that began it."""
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text("utf-8").splitlines()]
    expected = [json.loads(line) for line in (OLD / name / "expected.jsonl").read_text("utf-8").splitlines()]
    model, expected_model = load_file(folder / "model.safetensors"), load_file(OLD / name / "expected.safetensors")
    for record in records:
        of_now = "wall_s", "wire_catch_up_bytes", "paper_catch_up_bytes", "clients", "missed", "work_s"
        for new in of_now:  # no part of the old results
            record.pop(new, None)
    assert model.keys() == expected_model.keys()
    if (torch.__version__.partition("+")[0], torch.backends.cpu.get_cpu_capability()) == MADE_BY:
        assert records == expected
        assert all(torch.equal(model[key], expected_model[key]) for key in model)
    else:
        assert [r["round"] for r in records] == [r["round"] for r in expected]
        assert records[-1]["objective"] == pytest.approx(expected[-1]["objective"], rel=1e-3)
        torch.testing.assert_close(model, expected_model, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("old", [name for name in BY_COMMAND if name != "finished"], indirect=True)
def test_an_interrupted_run_resumes_to_the_same_result(old):
    fedcef("run", "--resume", old)
    check(old, old.name)
    notes = old / "notes.jsonl"
    assert not notes.exists() or "logged before" not in notes.read_text("utf-8")  # the logged rounds were repeated


@pytest.mark.parametrize("old", ["finished"], indirect=True)
def test_resuming_a_finished_run_leaves_it_as_it_is(old):
    before = (old / "rounds.jsonl").read_bytes()
    fedcef("run", "--resume", old)
    assert (old / "rounds.jsonl").read_bytes() == before
    check(old, "finished")


@pytest.mark.parametrize("old", ["python"], indirect=True)
def test_a_run_from_python_resumes_to_the_same_result(old):
    draw = torch.Generator().manual_seed(3)
    truth = torch.randn(12, 3, generator=draw)

    def samples(n):
        x = torch.randn(n, 12, generator=draw)
        return x, (x @ truth).argmax(1)

    clients, test, model = [samples(n) for n in (30, 17, 24)], samples(50), torch.nn.Linear(12, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    problem = Problem.build(model, cross_entropy, clients=clients, test=test, regularizer=L1(1e-3))
    method = FedCEF(local_lr=0.05, local_steps=3, compressor=TopK(ratio=0.2))
    options = {"rounds": 9, "eval_every": 1, "batch_size": 5, "clip_norm": 2.0, "label": "old", "snapshot_every": 4}
    history = run(problem, method, **options, out=old, resume=True)
    check(old, "python")
    assert len(history) == 10


@pytest.mark.parametrize("old", ["deployed"], indirect=True)
def test_a_deployment_goes_on_to_the_same_result(old):
    loop = Loopback(load_settings(str(old / "server" / "config.toml")), old)
    assert loop.server.round == 6
    loop.run().server.finish()
    check(old / "server", "deployed")
    assert not loop.outcomes.keys() - {"accepted"}  # nobody had to begin afresh


def test_old_runs_are_reported(tmp_path):
    """The table, the figure and the page, of finished and interrupted runs together."""
    for name in (*BY_COMMAND, "python"):
        shutil.copytree(OLD / name, tmp_path / name)
    (tmp_path / "deployed").mkdir()
    shutil.copytree(OLD / "deployed" / "server", tmp_path / "deployed" / "server")
    shown = fedcef("plot", tmp_path)
    assert "FedCEF" in shown or "fedcef" in shown
    assert {path.name for path in tmp_path.iterdir()} >= {"figure.png", "figure.pdf", "report.html"}
    page = tmp_path / "page.html"
    fedcef("report", *[tmp_path / name for name in BY_COMMAND], "--out", page)
    assert "65.3" in page.read_text("utf-8")


@pytest.mark.parametrize("name", [*BY_COMMAND, "python"])
def test_old_runs_load_as_histories(name):
    history = History.load(OLD / name)
    expected = [json.loads(line) for line in (OLD / name / "expected.jsonl").read_text("utf-8").splitlines()]
    evaluated = [record for record in expected if "objective" in record]
    assert history["objective"] == [record["objective"] for record in evaluated][: len(history)]
    assert bool(history.parameters) == (name == "finished")
