"""A shrunk model computes what the whole one does, and has no unit that it could do without."""

import pytest
import torch
from torch import nn

from fedcef.core.chain import NotAChainError
from fedcef.export.shrink import count, shrink
from fedcef.export.trained import largest_difference
from fedcef.problems.lasso import Linear
from fedcef.problems.models import MLP, MODELS, MnistCNN


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def zero_units(model, share=0.5):
    """Make about this share of the units of all layers but the last zero, as a group lasso does: not their biases."""
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    for layer in layers[:-1]:
        layer.weight.data[torch.rand(len(layer.weight)) < share] = 0
    return model.eval().requires_grad_(False)


def widths(model):
    return [len(m.weight) for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("name", "shape"), [("mlp", (1, 8, 8)), ("mnist_cnn", (1, 12, 12)), ("cifar10_cnn", (3, 8, 8))]
)
def test_the_models_of_the_package_shrink_to_the_same_function(name, shape, dtype):
    model = zero_units(MODELS[name](shape, 10).to(dtype))
    inputs = torch.randn(16, *shape, dtype=dtype)
    small = shrink(model, inputs)
    assert count(small) < count(model) / 2
    assert largest_difference(model, small, inputs) < (2e-6 if dtype == torch.float32 else 1e-14)
    assert next(small.parameters()).dtype == dtype
    assert widths(shrink(small, inputs)) == widths(small)


def test_a_model_without_zeros_stays_as_it_is():
    model = MLP((1, 8, 8), 10)
    small = shrink(model, torch.randn(2, 1, 8, 8))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), small.parameters(), strict=True))


def test_the_model_given_is_left_alone():
    model = zero_units(MLP((1, 8, 8), 10))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    shrink(model, torch.randn(2, 1, 8, 8))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_constant_neurons_move_into_the_next_bias_by_hand():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double().requires_grad_(False)
    model[0].weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]))
    model[0].bias.copy_(torch.tensor([0.5, 3.0, -4.0]))
    model[2].weight.copy_(torch.tensor([[7.0, 0.25, 9.0]]))
    model[2].bias.copy_(torch.tensor([1.0]))
    small = shrink(model, torch.zeros(1, 2, dtype=torch.float64))
    assert small[0].weight.tolist() == [[1.0, 2.0]]
    assert small[2].weight.tolist() == [[7.0]]
    assert small[2].bias.tolist() == [1.75]  # 1 + 0.25·max(3, 0) + 9·max(-4, 0)


def test_a_constant_channel_moves_into_the_bias_of_an_unpadded_convolution():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, 3, bias=False)).requires_grad_(False)
    model[0].weight[1:3] = 0
    inputs = torch.randn(8, 1, 9, 9)
    small = shrink(model, inputs)
    assert widths(small) == [2, 2]
    assert largest_difference(model, small, inputs) < 1e-6


def test_constant_channels_before_a_padded_convolution_become_one():
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 2, 3, padding=1)).requires_grad_(False)
    model[0].weight[1:5] = 0
    model[0].bias[1:5] = torch.tensor([0.5, 2.0, 1.0, -1.0])
    inputs = torch.randn(8, 1, 9, 9)
    small = shrink(model, inputs)
    assert widths(small) == [3, 2]  # two that see the image, one for the constants 0.5, 2 and 1; -1 is 0 after ReLU
    assert largest_difference(model, small, inputs) < 1e-6


def test_a_unit_to_which_nobody_listens_goes_and_takes_those_before_it_along():
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).requires_grad_(False)
    model[4].weight[:, 1:] = 0  # of the second layer only neuron 0 is heard
    model[2].weight[0, 2:] = 0  # which hears only the neurons 0 and 1 of the first
    inputs = torch.randn(8, 5)
    small = shrink(model, inputs)
    assert widths(small) == [2, 1, 2]
    assert largest_difference(model, small, inputs) < 1e-6


def test_a_layer_of_zeros_keeps_one_unit():
    model = MnistCNN((1, 8, 8), 10).eval().requires_grad_(False)
    model.features[3].weight.zero_()
    inputs = torch.randn(8, 1, 8, 8)
    small = shrink(model, inputs)
    assert widths(small) == [1, 1, 1, 10]  # all outputs are constants
    assert largest_difference(model, small, inputs) < 1e-6


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.layer(x)


@pytest.mark.parametrize(
    ("model", "shape", "why"),
    [
        (Residual(), (4,), "add"),
        (Linear(torch.randn(4)), (4,), "weight"),
        (nn.Sequential(nn.Linear(4, 4), nn.PReLU(), nn.Linear(4, 1)), (4,), "PReLU"),
        (nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), (4, 5, 5), "Conv2d"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), (3, 4), "3 axes"),
        (nn.Sequential(nn.ReLU()), (4,), "no convolution"),
        (nn.Sequential(*[nn.Linear(4, 4)] * 2), (4,), "twice"),
    ],
)
def test_what_is_no_chain_is_refused_with_a_reason(model, shape, why):
    with pytest.raises(NotAChainError, match=why):
        shrink(model, torch.randn(2, *shape))
