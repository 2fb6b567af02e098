"""What goes through oneDNN in its own order of memory, against torch's own kernels and autograd in float64."""

import pytest
import torch
from torch import nn

from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.convolved import Convolved
from fedcef.oracles.loop import ClientLoop
from fedcef.oracles.onednn import is_faster, pooled, product
from fedcef.problems.models import MnistCNN
from fedcef.problems.problem import Problem

pytestmark = pytest.mark.skipif(not is_faster(torch.float32), reason="oneDNN is not used on this processor")

CHAINS = {
    "paper's": lambda: MnistCNN((2, 9, 7), 5),  # odd: the last row and column are in no window
    "overlapping": lambda: nn.Sequential(
        nn.Conv2d(2, 17, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1), nn.Flatten(), nn.Linear(340, 5)
    ),
    "no pool": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 5, stride=2, padding=(2, 1), bias=False),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2),
        nn.Identity(),
        nn.Flatten(),
        nn.Linear(90, 7),
        nn.Tanh(),
        nn.Linear(7, 5, bias=False),
    ),
    "bent": lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 5)),
}


def problem(model, dtype, blank=False):
    generator = torch.Generator().manual_seed(0)
    data = []
    for size in (20, 1, 17):
        images = torch.randn(size, 2, 9, 7, generator=generator)
        images[:, :, :, 3:] *= not blank  # as in the corners of MNIST, where all of a window are equally large
        data.append((images.to(dtype), torch.randint(0, 5, (size,), generator=generator)))
    torch.manual_seed(1)
    return Problem.build(model().to(dtype), nn.functional.cross_entropy, data)


def gradients(which, oracle, batch_size, **options):
    training = Training(batch_size=batch_size, precision=str(which.z0.dtype).removeprefix("torch."))
    made = oracle(which, training, **options).for_round(Rounds(training, which.num_clients).at(3), 1)
    return made(which.z0, 0)


@pytest.mark.parametrize("blank", [False, True], ids=["noise", "blank"])
@pytest.mark.parametrize("batch_size", [0, 1, 13])
@pytest.mark.parametrize("model", CHAINS)
def test_gradients_are_autograds(model, batch_size, blank):
    single, double = (problem(CHAINS[model], dtype, blank) for dtype in (torch.float32, torch.float64))
    assert torch.equal(single.z0.double(), double.z0)
    exact = gradients(double, ClientLoop, batch_size)
    found = gradients(single, Convolved, batch_size).double()
    assert ((found - exact).norm(dim=1) / exact.norm(dim=1)).max() < 1e-6


@pytest.mark.parametrize("model", CHAINS)
def test_chains_with_relu_go_through_it(model):
    oracle = Convolved(problem(CHAINS[model], torch.float32), Training(batch_size=2))
    assert oracle._by_onednn == (model != "bent")


def test_number_of_cores_changes_no_bit():
    which = problem(CHAINS["paper's"], torch.float32)
    one, two = (gradients(which, Convolved, 13, workers=workers) for workers in (1, 2))
    assert torch.equal(one, two)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [((2, 2), (2, 2), (0, 0)), ((3, 2), (2, 1), (1, 0))])
def test_of_equally_large_entries_the_first_counts(kernel, stride, padding):
    images = torch.randint(-2, 3, (3, 5, 7, 9), generator=torch.Generator().manual_seed(0)).float()
    leaf = images.clone().requires_grad_()
    largest = nn.functional.max_pool2d(leaf, kernel, stride, padding)
    error = torch.randint(-9, 10, largest.shape, generator=torch.Generator().manual_seed(1)).float()  # sums are exact
    with torch.no_grad():
        outputs, back = pooled(images.to_mkldnn(), kernel, stride, padding)
        assert torch.equal(outputs.to_dense(), largest)
        outputs.relu_()  # as the chain does: the places are kept elsewhere
        assert torch.equal(back(error.to_mkldnn()).to_dense(), torch.autograd.grad(largest, leaf, error)[0])


def test_what_is_not_a_number_is_not_hidden():
    """Pooling passes over it, but the first convolution's derivatives do not."""
    which = problem(CHAINS["paper's"], torch.float32)
    which.data.table.inputs[0, 0, 4, 4] = torch.nan
    assert gradients(which, Convolved, 0)[0].isnan().any()


@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 5), (6, 1, 5), (6, 7, 1), (33, 65, 129)])
def test_products(shape, turned):
    rows, inner, columns = shape
    draw = torch.Generator().manual_seed(0)
    left, right = (torch.randn(n, inner, generator=draw) for n in (rows, columns))
    bias = torch.randn(columns, generator=draw)
    if turned:
        left, right = left.t().contiguous().t(), right.t().contiguous().t()
    exact = left.double() @ right.double().t()
    torch.testing.assert_close(product(left, right).double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(product(left, right, bias).double(), exact + bias, rtol=1e-5, atol=1e-5)
