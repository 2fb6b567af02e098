"""Derivatives of convolutional chains written out, against autograd's."""

import pytest
import torch
from torch import nn

from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.convolved import Convolved
from fedcef.oracles.oracle import make_oracle
from fedcef.problems.models import MnistCNN
from fedcef.problems.problem import Problem

CHAINS = {
    "paper's": lambda: MnistCNN((2, 8, 8), 5),
    "relu first": lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1), nn.Flatten(), nn.Linear(27, 5)
    ),
    "other convolutions": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 5, stride=2, padding=(2, 1), bias=False),
        nn.Tanh(),
        nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2),
        nn.Identity(),
        nn.MaxPool2d((2, 1)),
        nn.Flatten(),
        nn.Linear(36, 7),
        nn.Sigmoid(),
        nn.Linear(7, 5, bias=False),
    ),
}
SIZES = (20, 9, 17)


def problem(model, loss=nn.functional.cross_entropy, ignored=False, channels=2):
    generator = torch.Generator().manual_seed(0)
    data = []
    for size in SIZES:
        inputs = torch.randn(size, channels, 8, 8, generator=generator, dtype=torch.float64)
        targets = torch.randint(0, 5, (size,), generator=generator)
        if ignored:
            targets[::3] = -100
        data.append((inputs, targets))
    torch.manual_seed(1)
    return Problem.build(model().double(), loss, data)


def gradients(which, oracle, **options):
    training = Training(oracle=oracle, precision="float64", **{"batch_size": 12, **options})
    round_ = Rounds(training, which.num_clients).at(3)
    made = make_oracle(which, training).for_round(round_, 2)
    draw = torch.Generator().manual_seed(2)
    points = which.z0 + 0.1 * torch.randn(len(SIZES), which.dim, generator=draw, dtype=torch.float64)
    with torch.no_grad():
        return torch.stack([made(which.z0, 0), made(points, 1)])


def assert_equal(which, **options):
    exact = gradients(which, "loop", **options)
    assert exact.norm() > 0
    torch.testing.assert_close(gradients(which, "layered", **options), exact, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"batch_size": 0}, {"clip_norm": 0.5}], ids=["batches", "all", "clipped"])
@pytest.mark.parametrize("model", CHAINS)
def test_they_are_autograds(model, options):
    assert_equal(problem(CHAINS[model]), **options)


def test_with_any_loss_and_one_channel():
    def own(outputs, targets):
        return (outputs.logsumexp(-1) * targets).mean()

    assert_equal(problem(CHAINS["paper's"], own))
    assert_equal(problem(CHAINS["paper's"], ignored=True))
    assert_equal(problem(lambda: MnistCNN((1, 8, 8), 5), channels=1))


@pytest.mark.parametrize("between", ["relu", "activation", "pool"])
def test_what_a_derivative_needs_is_not_overwritten(between):
    """A ReLU is applied in place: after an activation, whose values count, that would be wrong."""
    layer = {"relu": nn.ReLU(), "activation": nn.Tanh(), "pool": nn.MaxPool2d(1)}[between]
    chain = [nn.Conv2d(2, 3, 3), nn.Tanh(), layer, nn.ReLU(), nn.Flatten(), nn.Linear(108, 5)]
    which = problem(lambda: nn.Sequential(*chain))
    if between == "pool":
        assert_equal(which)
    else:
        with pytest.raises(ConfigError, match="with convolutions needs"):
            make_oracle(which, Training(oracle="layered", precision="float64", batch_size=4))


def tied():
    first = nn.Conv2d(2, 2, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), first, nn.Flatten(), nn.Linear(128, 5))


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (tied, {}),
        (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Dropout(), nn.Flatten(), nn.Linear(108, 5)), {}),
        (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(27, 5)), {}),
        (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding="same"), nn.Flatten(), nn.Linear(192, 5)), {}),
        (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.ReLU(), nn.Linear(108, 5)), {}),
        (CHAINS["paper's"], {"precision": "bfloat16"}),
    ],
    ids=["tied", "dropout", "mean pool", "same", "activated features", "bfloat16"],
)
def test_others_are_refused(model, options):
    with pytest.raises(ConfigError, match="with convolutions needs a CPU"):
        make_oracle(problem(model), Training(oracle="layered", batch_size=4, **options))


def test_number_of_cores_changes_no_bit():
    which, training = problem(CHAINS["paper's"]), Training(precision="float64", batch_size=12)
    round_ = Rounds(training, which.num_clients).at(1)
    with torch.no_grad():
        one, two = (Convolved(which, training, workers).for_round(round_, 1)(which.z0, 0) for workers in (1, 2))
    assert torch.equal(one, two)
