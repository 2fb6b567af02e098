"""Options that have no effect are told at the start of a run, and neither refused nor passed over in silence."""

import json

import pytest
import torch

import fedcef
from fedcef.algorithms import ALGORITHMS, FedAvg, FedCEF
from fedcef.compressors import Auto, TopK
from fedcef.core.training import Training
from fedcef.optimizers import AdamW
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run
from fedcef.runs.without_effect import without_effect
from fedcef.simulation.simulation import Simulation

SMALL = ["rounds=2", "num_clients=4", "eval.optimum=false", "data.dim=10", "data.samples=20", "data.support=3"]
FEDCEF = [*SMALL, "algorithm.name=fedcef", "compressor.name=topk"]
OPTIONS = {"own_part": 0.2, "participation": "averaged", "metric_memory": 0.9, "metric_floor": 1e-3, "model_bits": 4}


def found(*changes):
    """The options that are named for these settings."""
    settings = load_settings("lasso", [*FEDCEF, *changes])
    problem = settings.build_problem()
    simulation = Simulation(problem, settings.build_algorithm(problem), settings)
    return [sentence.split(" has no effect ")[0] for sentence in without_effect(simulation.algorithm, settings)]


@pytest.mark.parametrize(("option", "value"), OPTIONS.items())
def test_an_option_that_changes_nothing_is_named(option, value):
    assert found(f"algorithm.{option}={value}") == [f"algorithm.{option}"]


@pytest.mark.parametrize(
    "changes",
    [
        ["algorithm.own_part=0.2", "clients_per_round=2"],
        ["algorithm.participation=averaged", "clients_per_round=2"],
        ["algorithm.metric=adam", "algorithm.metric_memory=0.9", "algorithm.metric_floor=0.001"],
        ["algorithm.downlink=snapshot", "algorithm.model_bits=4"],
        ["algorithm.index_code=context", "algorithm.downlink=dense"],  # messages on the way up are shorter
        ["budget_tilt=0.5", "budget=20KB"],
    ],
    ids=lambda changes: changes[0],
)
def test_one_that_has_an_effect_is_not(changes):
    assert found(*changes) == []


@pytest.mark.parametrize(
    "idle",
    [["algorithm.control=change", "algorithm.mixing=1.0"], ["algorithm.own_part=0", "clients_per_round=2"]],
    ids=lambda changes: changes[0],
)
def test_a_correction_that_is_not_made_is_named(idle):
    assert found("algorithm.drift_weight=0.5", *idle) == ["algorithm.drift_weight"]
    assert found(*idle) == []


def test_auto_on_the_way_down_alone_is_told():
    def told(up):
        method = FedCEF(compressor=up, downlink="lossy", down_compressor=Auto(target=0.9))
        return without_effect(method, Training())

    assert told(TopK(ratio=0.1)) == (
        "down_compressor.name = 'auto' chooses nothing by itself and is Top-1%; with compressor.name = 'auto' both are "
        "chosen.",
    )
    assert told(Auto(target=0.9)) == ()


def test_own_part_beside_the_averaged_rule_and_a_tilt_of_no_budget_are_named():
    assert found("algorithm.participation=averaged", "algorithm.own_part=0.2", "clients_per_round=2") == [
        "algorithm.own_part"
    ]
    assert found("budget_tilt=0.5") == ["budget_tilt"]
    assert without_effect(FedCEF(compressor=Auto(target=0.9)), Training(budget_tilt=0.5)) == ()


@pytest.mark.parametrize("kind", ALGORITHMS.values(), ids=ALGORITHMS)
def test_defaults_are_never_named(kind):
    assert without_effect(kind(), Training()) == ()


def test_a_run_writes_it_down_once_and_its_complete_settings_go_on(tmp_path):
    settings = load_settings("lasso", [*FEDCEF, "algorithm.own_part=0.2", "snapshot_every=1"])
    folder = RunFolder.new(tmp_path / "run")
    told = []
    run(settings, folder, watch=told.append)
    (note,) = map(json.loads, folder.notes.read_text().splitlines())
    assert note["note"].startswith("algorithm.own_part has no effect where all clients take part in every round; ")
    assert {"note": note["note"]} in told
    again = load_settings(str(folder.config), ["rounds=3"])
    assert run(again, RunFolder.open(folder.path), resume=True)["rounds"] == 3
    assert folder.notes.read_text().count("has no effect") == 1


def test_a_history_has_it_among_its_notes():
    problem = lasso(L1(0.1), num_clients=3, samples=10, dim=5, support=2, dtype=torch.float64)
    (note,) = fedcef.run(problem, FedCEF(local_lr=0.01, own_part=0.2), rounds=1).notes
    assert note.startswith("algorithm.own_part has no effect")


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_warm_up_that_is_longer_than_the_run(schedule):
    method = FedAvg(local_steps=4, local_update=AdamW(warmup=80, schedule=schedule))
    said = "local_update.warmup is 80 local steps and the run has 40, so that the step size rises to 0.5 of local_lr; "
    assert without_effect(method, Training(rounds=10)) == (said + "shorten it.",)
    assert without_effect(method, Training(rounds=20)) == ()
