"""The trials of local steps on text: what they do where it is known what they must do."""

from dataclasses import replace

import pytest
import torch
from test_first_contact_benchmark import BENCHMARKS

TINY = [
    "data.context=8",
    "data.tokens_per_client=200",
    "data.test_windows=4",
    "model.layers=1",
    "model.heads=2",
    "model.width=16",
]


@pytest.fixture
def trials(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import language_trials

    return language_trials


def few(trials, *changes):
    return trials.Workers(0, 2, [*TINY, *changes])


def test_one_worker_that_tells_everything_is_data_parallelism(trials):
    alone = trials.Trial("adamw", 1e-2, steps=3)
    workers, reference = few(trials, "num_clients=1"), few(trials, "num_clients=1")
    loss, bits = trials.play(alone, workers, 6)
    expected, _ = trials.play(replace(alone, steps=0), reference, 6)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert bits == pytest.approx(64 / 3)


def test_a_mean_of_momenta_in_every_step_is_what_all_workers_have(trials):
    states = [{"m": torch.full((3,), float(i)), "adam_v": torch.full((2,), float(i))} for i in range(3)]
    trials.share_memory(trials.Trial(memory="mean"), states)
    assert [state["m"].tolist() for state in states] == [[1.0] * 3] * 3
    assert [state["adam_v"][0].item() for state in states] == [0.0, 1.0, 2.0]


def test_rounds_by_distance_go_equally_far(trials):
    workers, trial = few(trials), trials.TRIALS["Muon, 15 steps, 2 bits, rounds by distance"]
    update = trials.optimizer(trial, workers, 360)
    rounds = trials.rounds_of(trial, update, 24)
    assert rounds[0][0] == 0
    assert rounds[-1][1] == 360
    far = [sum(float(update.after(torch.tensor(n)).factor(0)) for n in range(*ends)) for ends in rounds]
    assert max(far) - min(far) < 2  # a step more or less
    assert len({last - first for first, last in rounds}) > 5


@pytest.mark.parametrize(
    "name",
    [
        "Muon, 8 steps, momenta told by 5% signs",
        "Muon, 8 steps, momenta along the mean change",
        "Muon, 8 steps, 1 bit, mean momenta",
        "Muon, 15 steps, 2 bits, server momentum",
        "Muon, 15 steps, 2 bits, half orthogonal",
        "Muon, 1 step, alike",
    ],
)
def test_a_trial_ends_below_where_it_began(trials, name):
    workers = few(trials)
    began = workers.test_loss(workers.start)
    loss, bits = trials.play(replace(trials.TRIALS[name], steps=min(5, trials.TRIALS[name].steps)), workers, 20)
    assert loss < began
    assert bits <= 64
