"""Runs that end when they stop getting better, watchers that see the model, and checksums of text."""

import json
import tomllib

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import fedcef
from fedcef import FedAvg, Problem
from fedcef.core.errors import ConfigError, RunError
from fedcef.core.training import Training
from fedcef.runs.folder import RunFolder
from fedcef.runs.loop import takes_model
from fedcef.runs.run import run as run_in_folder
from fedcef.runs.settings import Settings
from fedcef.runs.stopping import Patience


def regression(noise=0.5):
    g = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 3, generator=g)
    targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5]]) + noise * torch.randn(40, 1, generator=g)
    torch.manual_seed(0)
    return Problem.build(
        nn.Linear(3, 1), mse_loss, [(inputs[:15], targets[:15]), (inputs[15:30], targets[15:30])],
        test=(inputs[30:], targets[30:]),
    )  # fmt: skip


def play(values, **options):
    patience = Patience.of(Training(stop={"measure": "m", **options}))
    return [bool(patience.hear({"round": t, "objective": 0.0, "m": value})) for t, value in enumerate(values)]


def test_patience_by_hand():
    assert play([3, 2, 2, 2], patience=2) == [False, False, False, True]
    assert play([3, 2, 2, 1, 1, 1], patience=2) == [False, False, False, False, False, True]
    assert play([1, 2, 3], patience=2, mode="max") == [False, False, False]
    assert play([1, 2, 3], patience=2) == [False, False, True]
    assert play([3.0, 2.95, 2.9], patience=2, least=0.2) == [False, False, True]
    assert play([float("nan"), float("nan")], patience=1) == [True, True]


def test_what_is_better_is_known_of_the_measures_of_the_package():
    for name, values in {
        "accuracy": [0.1, 0.2],
        "r2": [0, 1],
        "client_accuracy_p10": [0, 1],
        "test_loss": [1, 0],
    }.items():
        patience = Patience.of(Training(stop={"measure": name, "patience": 1}))
        assert not any(patience.hear({"round": 1, "objective": 0.0, name: value}) for value in values)
    with pytest.raises(ConfigError, match=r"stop\.mode is auto, which does not know bias"):
        Patience.of(Training(stop="bias", eval={"metrics": bias}))


def bias(outputs, targets):
    return (outputs - targets).mean()


def test_a_run_from_python_stops_early_and_says_so():
    options = {"rounds": 60, "eval_every": 2, "batch_size": 0, "metrics": ["r2", bias], "per_client": True}
    history = fedcef.run(regression(), FedAvg(local_lr=0.1), stop={"measure": "test_loss", "patience": 3}, **options)
    losses = history["test_loss"]
    assert history.last["round"] < 60
    assert min(losses) == losses[-4]
    assert [note.startswith("Stopped early after round") for note in history.notes] == [True]
    longer = fedcef.run(regression(), FedAvg(local_lr=0.1), **options)
    assert longer["test_loss"][: len(losses)] == losses  # what was recorded does not depend on it
    assert {"r2", "bias", "client_loss_p90"} <= set(history.measures)


def test_a_measure_that_is_not_recorded_is_refused():
    with pytest.raises(ConfigError, match=r"stop\.measure is 'accuracy', which is not recorded; there are round"):
        fedcef.run(regression(), FedAvg(local_lr=0.1), rounds=3, stop="accuracy")
    with pytest.raises(ConfigError, match=r"stop\.patience"):
        fedcef.run(regression(), FedAvg(local_lr=0.1), stop={"measure": "objective", "patience": 0})


class Crash(Exception):
    pass


def records_of(folder):
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "wall_s"} for line in lines]


@pytest.mark.parametrize("crash", [3, 8, "summary"])
def test_a_run_that_was_cut_off_stops_where_it_would_have(tmp_path, crash, monkeypatch):
    settings = Settings(
        rounds=60, num_clients=2, local_steps=2, local_lr=0.02, batch_size=0, snapshot_every=2,
        regularizer={"name": "zero"}, data={"name": "lasso", "dim": 8, "support": 4, "samples": 16},
        stop={"measure": "train_loss", "patience": 4, "least": 0.3}, eval={"train_samples": 10},
    )  # fmt: skip
    whole = run_in_folder(settings, RunFolder(tmp_path / "whole"))
    assert whole["status"] == "finished"
    assert 8 < whole["rounds"] < 60
    assert whole["stopped_early"].startswith(f"Stopped early after round {whole['rounds']}")
    last = records_of(tmp_path / "whole")[-1]
    assert whole["train_loss"] != last["train_loss"]  # the summary is on all samples

    def watch(record):
        if record.get("round") == crash:
            raise Crash

    cut = RunFolder(tmp_path / "cut")

    def crashed(*_):
        raise Crash

    with monkeypatch.context() as patch:
        if crash == "summary":
            patch.setattr(RunFolder, "save_model", crashed)
        with pytest.raises(Crash):
            run_in_folder(settings, cut, watch=watch)
    again = run_in_folder(settings, cut, resume=True)
    assert records_of(tmp_path / "cut") == records_of(tmp_path / "whole")
    assert {k: v for k, v in again.items() if k != "wall_s"} == {k: v for k, v in whole.items() if k != "wall_s"}
    assert "[stop]" in cut.config.read_text()


def test_settings_without_these_options_are_written_as_before():
    written = tomllib.loads(Settings().to_toml())
    assert set(written["eval"]) == {"every", "train_samples", "optimum"}
    assert "stop" not in written
    changed = Settings(eval={"per_client": True, "last_on_all": False}).to_toml()
    assert tomllib.loads(changed)["eval"].items() >= {"per_client": True, "last_on_all": False}.items()


def test_the_last_round_may_be_evaluated_like_the_others(tmp_path):
    data = {"name": "lasso", "dim": 8, "support": 4, "samples": 16}

    def last(on_all):
        settings = Settings(
            rounds=1, num_clients=2, data=data, local_lr=0.01, eval={"train_samples": 4, "last_on_all": on_all}
        )
        return run_in_folder(settings, RunFolder(tmp_path / str(on_all)))["train_loss"]

    assert last(True) != last(False)


@pytest.mark.parametrize("out", [False, True])
def test_a_watcher_of_two_arguments_sees_the_model_of_the_record(out, tmp_path):
    seen = []
    problem = regression()

    def watch(record, model):
        loss = float(mse_loss(model(problem.test.inputs), problem.test.targets).detach())
        seen.append((record["round"], loss, record["test_loss"]))

    history = fedcef.run(
        problem, FedAvg(local_lr=0.1), rounds=6, eval_every=2, watch=watch, out=tmp_path / "run" if out else None
    )
    assert [round_ for round_, _, _ in seen] == [0, 2, 4, 6]
    assert [mine for _, mine, _ in seen] == pytest.approx([theirs for _, _, theirs in seen], rel=1e-6)
    assert history["test_loss"] == [theirs for _, _, theirs in seen]


def test_which_watchers_take_a_model():
    assert takes_model(lambda record, model: None)
    assert takes_model(lambda record, model=None: None)
    assert not takes_model(lambda record: None)
    assert not takes_model(lambda record, log=print: None)
    assert not takes_model(lambda *things: None)
    assert not takes_model([].append)


def test_functions_without_a_name_are_no_metrics():
    with pytest.raises(ConfigError, match="has no name to be recorded by"):
        fedcef.run(regression(), FedAvg(local_lr=0.1), rounds=1, metrics=[lambda outputs, targets: 0])


def test_text_that_has_changed_is_refused(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in "ab":
        (texts / f"{name}.txt").write_text("to be or not to be, that is the question. " * 8)
    settings = Settings(
        rounds=2, num_clients=2, local_steps=1, snapshot_every=1, batch_size=4, regularizer={"name": "zero"},
        data={"name": "text", "path": str(texts), "context": 8, "test_windows": 4},
        model={"name": "gpt", "width": 8, "heads": 2, "layers": 1},
        eval={"metrics": ["bits_per_byte"]}, oracle="loop",
    )  # fmt: skip
    folder = RunFolder(tmp_path / "run")

    def watch(record):
        if record.get("round") == 1:
            raise Crash

    with pytest.raises(Crash):
        run_in_folder(settings, folder, watch=watch)
    begun = json.loads(folder.facts.read_text())["data"]["sha256"]
    (texts / "b.txt").write_text("whether 'tis nobler in the mind to suffer " * 8)
    with pytest.raises(RunError, match=f"have changed since it began: sha256 was {begun}"):
        run_in_folder(settings, folder, resume=True)
    (texts / "b.txt").write_text("to be or not to be, that is the question. " * 8)
    summary = run_in_folder(settings, folder, resume=True)
    assert summary["bits_per_byte"] == pytest.approx(summary["test_loss"] / 0.6931471805599453, rel=1e-6)
    facts = json.loads(folder.facts.read_text())
    assert facts["data"] == {"sha256": begun}
    assert set(facts) == {"clients", "data", "messages"}
