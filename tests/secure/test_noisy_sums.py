"""Noise once on the sum: how much, where, and what it is worth."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("dp_accounting", reason="pip install 'fedcef[privacy]'")

from deployment.setting import LASSO, simulation
from fedcef.algorithms.noisy_sums import Noisy
from fedcef.algorithms.received import Received
from fedcef.core.rng import round_key
from fedcef.privacy import Privacy, epsilon
from fedcef.runs.run import run as run_settings
from fedcef.runs.settings import Settings

PRIVACY = {"clip": 0.5, "noise": 3.0, "added_by": "server"}


def settings(**changes):
    base = {
        "rounds": 3,
        "num_clients": 5,
        "local_steps": 2,
        "local_lr": 0.01,
        "data": LASSO,
        "algorithm": {"name": "fedpaq"},
        "secure": {"range": 0.5, "block": 8},
        "privacy": PRIVACY,
        "regularizer": {"name": "zero"},
    }
    return Settings(**{**base, **changes})


def built(**changes):
    run = settings(**changes)
    problem = run.build_problem()
    return run.build_algorithm(problem), problem


@pytest.mark.parametrize("ratio", [1.0, 0.25])
def test_the_noise_is_on_what_was_sent_and_as_large_as_promised(ratio):
    """A draw of ones times σB/Δ steps, by hand; then the statistics of the simulator's own draw."""
    algorithm, problem = built(compressor={"name": "randk", "ratio": ratio})
    grid, p = algorithm.compressor, problem.dim
    assert isinstance(algorithm, Noisy)
    bound = grid.stretched(p)
    assert 0.5 < bound < 0.7
    assert algorithm.deviation == 3.0 * bound
    stack = grid.compress(torch.zeros(5, p), round_key(0, 0, torch.arange(5)))
    received = Received.of({"change": stack}, torch.tensor(7))
    replica = algorithm.replica_init(torch.zeros(p))

    def moved(draw):
        down, _ = replace(algorithm, draw=draw).server_step({}, replica, received)
        return down["z"].dense()

    ones = moved(lambda total, key: torch.ones(total.steps.shape[-1], dtype=torch.float64))
    expected = replace(stack.summed(), steps=torch.full((grid.count(p),), 3 * bound / grid.step)).dense() / 5
    torch.testing.assert_close(ones, expected)
    found = torch.stack([moved(lambda total, key, t=t: algorithm.draw(total, key + t)) for t in range(400)])
    energy = float(found.double().square().sum(-1).mean())
    sent = float(expected.square().sum())  # of noise that is 1 wherever something was sent
    assert energy == pytest.approx(sent, rel=5 * (2 / (400 * grid.count(p))) ** 0.5 + 0.02)


def test_next_to_no_noise_and_clip_change_nothing():
    quiet, plain = settings(privacy={**PRIVACY, "clip": 1e3, "noise": 1e-9}), settings(privacy=None)
    runs = [simulation(one) for one in (quiet, plain)]
    for one in runs:
        for _ in range(3):
            one.step()
    torch.testing.assert_close(runs[0].model(), runs[1].model(), rtol=0, atol=1e-5)


def test_epsilon_is_reported_as_for_noise_by_the_clients(tmp_path):
    from fedcef.runs.folder import RunFolder

    summary = run_settings(settings(), RunFolder.new(tmp_path / "run"))
    assert summary["epsilon"] == pytest.approx(epsilon(3.0, 3, 1e-5))
    assert Privacy(**PRIVACY).spent(3) == {"epsilon": summary["epsilon"], "delta": 1e-5}


def test_every_message_is_bounded_whatever_the_data():
    """Two runs whose clients differ in one: the sums of the first round differ by at most twice the bound."""
    algorithm, problem = built()
    grid, p = algorithm.compressor, problem.dim
    key = round_key(0, 0, torch.arange(5))
    x = torch.randn(5, p, generator=torch.Generator().manual_seed(0))
    other = x.clone()
    other[2] *= -1000
    sums = [grid.compress(one, key).summed().steps.double() * grid.step for one in (x, other)]
    assert 0.5 < float((sums[0] - sums[1]).norm()) <= 2 * grid.stretched(p)
