"""Derivatives of linear chains written out, against autograd's."""

import pytest
import torch
from torch import nn

from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.oracle import make_oracle
from fedcef.problems.problem import Problem

CHAINS = {
    "softmax": lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 5)),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 5)),
    "deep": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 6, bias=False), nn.Sigmoid(), nn.Linear(6, 5)
    ),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.Linear(7, 5)),
}


def halves(outputs, targets):
    return (outputs.logsumexp(-1) * targets).mean()


LOSSES = {
    "cross_entropy": nn.functional.cross_entropy,
    "module": nn.CrossEntropyLoss(),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.1),
    "own": halves,
}


def problem(model, loss=nn.functional.cross_entropy, clients=4, ignored=False):
    generator = torch.Generator().manual_seed(0)
    data = []
    for _ in range(clients):
        inputs = torch.randn(9, 3, 4, generator=generator, dtype=torch.float64)
        targets = torch.randint(0, 5, (9,), generator=generator)
        if ignored:
            targets[::3] = -100
        data.append((inputs, targets))
    torch.manual_seed(1)
    return Problem.build(model().double(), loss, data)


def gradients(which, oracle, **options):
    training = Training(oracle=oracle, precision="float64", **{"batch_size": 6, **options})
    round_ = Rounds(training, which.num_clients).at(3)
    made = make_oracle(which, training).for_round(round_, 2)
    points = which.z0 + torch.randn(4, which.dim, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    with torch.no_grad():
        return torch.stack([made(which.z0, 0), made(points, 1)])


@pytest.mark.parametrize("options", [{}, {"batch_size": 0}, {"clip_norm": 0.5}], ids=["batches", "all", "clipped"])
@pytest.mark.parametrize("model", CHAINS)
@pytest.mark.parametrize("loss", LOSSES)
def test_they_are_autograds(model, loss, options):
    which = problem(CHAINS[model], LOSSES[loss])
    exact = gradients(which, "stacked", **options)
    torch.testing.assert_close(gradients(which, "layered", **options), exact, rtol=1e-12, atol=1e-14)


def test_ignored_samples_do_not_count():
    which = problem(CHAINS["mlp"], ignored=True)
    torch.testing.assert_close(gradients(which, "layered"), gradients(which, "stacked"), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.LayerNorm(7), nn.Linear(7, 5)), {}),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU()), {}),
        (CHAINS["mlp"], {"precision": "bfloat16"}),
    ],
    ids=["norm", "activated outputs", "bfloat16"],
)
def test_others_are_refused(model, options):
    with pytest.raises(ConfigError, match="needs a chain of linear layers"):
        make_oracle(problem(model), Training(oracle="layered", **options))


@pytest.mark.parametrize("frozen", ["1.weight", "1.bias"])
def test_frozen_parameters_are_not_left_out_silently(frozen):
    model = CHAINS["mlp"]().double()
    model.get_parameter(frozen).requires_grad_(False)
    with pytest.raises(ConfigError, match="needs a chain of linear layers"):
        make_oracle(problem(lambda: model), Training(oracle="layered"))


def test_a_single_layer_is_a_chain():
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(9, 6, generator=generator), torch.randint(0, 5, (9,), generator=generator)) for _ in range(4)]
    torch.manual_seed(1)
    which = Problem.build(nn.Linear(6, 5).double(), nn.functional.cross_entropy, [(x.double(), y) for x, y in data])
    torch.testing.assert_close(gradients(which, "layered"), gradients(which, "stacked"), rtol=1e-12, atol=1e-14)
