"""The models of the catalogue."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from fedcef.problems.models import MODELS, Cifar10CNN, MnistCNN
from fedcef.problems.source import seeded_model

OF_TOKENS = ("gpt", "lstm")
OF_IMAGES = tuple(name for name in MODELS if name not in OF_TOKENS)


def size(model):
    return sum(p.numel() for p in model.parameters())


def test_sizes():
    assert size(MODELS["mnist_cnn"]((1, 28, 28), 10)) == 421_642
    assert size(MODELS["cifar10_cnn"]((3, 32, 32), 10)) == 4_460_106
    assert size(MODELS["softmax"]((1, 8, 8), 10)) == 650
    assert size(MODELS["mlp"]((1, 8, 8), 10)) == 64 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 12, 16), (1, 9, 7)])
@pytest.mark.parametrize("name", OF_IMAGES)
def test_every_model_takes_images_and_has_nothing_but_parameters(name, shape):
    model = MODELS[name](shape, 5)
    assert list(model.buffers()) == []
    assert all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
    outputs = model(torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)))
    assert outputs.shape == (3, 5)
    assert bool(outputs.isfinite().all())
    gradients = torch.autograd.grad(outputs.square().sum(), list(model.parameters()))
    assert all(bool(g.any()) for g in gradients)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_samples_do_not_mix(name):
    model = MODELS[name]((1, 8, 8), 5).double()
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one_by_one = torch.cat([model(sample.unsqueeze(0)) for sample in x])
    assert torch.allclose(model(x), one_by_one, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kind", "shape"), [(MnistCNN, (1, 28, 28)), (Cifar10CNN, (3, 32, 32))])
def test_pooling_before_relu_is_the_paper_s_function(kind, shape):
    """max and ReLU commute: convolution, ReLU, pooling is what the paper has."""
    model = kind(shape, 10)
    layers = list(model.features)
    for i in [i for i, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]:
        layers[i : i + 2] = layers[i + 1], layers[i]
    usual = nn.Sequential(*layers, nn.Flatten(), *model.classifier)
    kinds = [type(layer).__name__ for layer in usual]
    assert "MaxPool2d" not in [after for layer, after in pairwise(kinds) if layer == "Conv2d"]
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(model(x), usual(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_the_start_is_a_function_of_the_seed_and_of_nothing_else(name):
    shape = (8,) if name in OF_TOKENS else (1, 8, 8)

    def start(seed):
        return nn.utils.parameters_to_vector(seeded_model({"name": name}, shape, 3, seed).parameters())

    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = start(4)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(start(4), first)
    assert not torch.equal(start(5), first)
