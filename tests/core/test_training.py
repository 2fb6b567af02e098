"""The options of a run: each means the same wherever it is given, and every mistake is one sentence."""

import pytest
import torch
from torch import nn

from fedcef import FedAvg, Problem, Training, run
from fedcef.core.errors import ConfigError
from fedcef.core.schedules import Constant, Cosine
from fedcef.runs.settings import Settings
from fedcef.simulation.simulation import Simulation

MISTAKES = [
    ({"oracle": "fast"}, "oracle is 'fast'; it must be 'auto', 'loop', 'stacked', 'batched' or 'layered'."),
    ({"batch_size": -1}, "batch_size is -1; it must be greater than or equal to 0."),
    ({"rounds": 3.5}, "rounds is 3.5; it must be a valid integer."),
    ({"rounds": 0}, "rounds is 0; it must be greater than or equal to 1."),
    ({"seed": None}, "seed is None; it must be a valid integer."),
    ({"weighting": "sample"}, "weighting is 'sample'; it must be 'uniform' or 'samples'."),
    (
        {"precision": "fp16"},
        "precision is 'fp16'; it must be 'float32', 'float64', 'tf32', 'bfloat16' or 'bfloat16_weights'.",
    ),
    ({"clip_norm": -1.0}, "clip_norm is -1.0; it must be greater than or equal to 0."),
    ({"clip_norm": float("nan")}, "clip_norm is nan; it must be"),
    ({"clients_per_round": -2}, "clients_per_round is -2; it must be greater than or equal to 0."),
    ({"local_schedule": "cosinus"}, "local_schedule.name is 'cosinus'; it must be one of constant, cosine, step."),
    ({"local_schedule": Cosine(final=2.0)}, "final is 2.0; it must be less than or equal to 1."),
    ({"server_schedule": 3}, "server_schedule is 3; it must be a schedule, its name or a section"),
    ({"budget": "much"}, "budget is 'much'; it must be a number of bytes such as 300MB or 1e9."),
]


def problem():
    inputs = torch.randn(2, 12, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    return Problem.build(nn.Linear(3, 1), nn.functional.mse_loss, [(x, x.sum(-1, keepdim=True)) for x in inputs])


PROBLEM = problem()


@pytest.mark.parametrize(("options", "sentence"), MISTAKES, ids=[next(iter(o)) for o, _ in MISTAKES])
def test_a_mistake_is_the_same_sentence_everywhere(options, sentence):
    for take in (
        lambda: Training(**options),
        lambda: Settings(**options),
        lambda: Simulation(PROBLEM, FedAvg(), **options),
        lambda: run(PROBLEM, FedAvg(), **{"rounds": 1, **options}),
    ):
        with pytest.raises(ConfigError) as error:
            take()
        assert str(error.value).startswith(sentence)


def test_unknown_options_are_told_with_those_there_are():
    with pytest.raises(ConfigError, match=r"There is no setting batchsize; there are .*Did you mean batch_size\?"):
        Training(batchsize=3)
    with pytest.raises(ConfigError, match=r"There is no setting eval.evry; .*Did you mean eval.every\?"):
        Training(eval={"evry": 3})
    with pytest.raises(ConfigError, match="Give either a Training or its options by name"):
        Simulation(PROBLEM, FedAvg(), Training(), seed=3)


def test_off_is_off_everywhere():
    """clip_norm = 0 once zeroed every gradient in memory, and meant "off" in a file."""
    ends = [run(PROBLEM, FedAvg(), rounds=2, clip_norm=clip).parameters["weight"] for clip in (None, 0, 0.0, 1e9)]
    assert all(torch.equal(end, ends[0]) for end in ends)
    assert not torch.equal(ends[0], PROBLEM.model.weight)
    assert Training(clients_per_round=None).clients_per_round == 0


def test_options_are_written_as_settings_and_read_again():
    training = Training(rounds=7, local_schedule="cosine", budget="3MB", clip_norm=None)
    assert isinstance(training.local_schedule, Cosine)
    assert isinstance(training.server_schedule, Constant)
    assert training.budget == 3_000_000
    assert Training(**training.model_dump()).model_dump() == training.model_dump()
    assert set(Training.model_fields) <= set(Settings.model_fields)


def test_a_round_that_is_due():
    training = Training(rounds=25, snapshot_every=10, eval={"every": 4})
    assert [t for t in range(26) if training.is_evaluated(t)] == [0, 4, 8, 12, 16, 20, 24, 25]
    assert [t for t in range(26) if training.is_kept(t)] == [10, 20, 25]
    assert not any(Training(snapshot_every=0).is_kept(t) for t in range(101))
