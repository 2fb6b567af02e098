"""Flat vectors and the named tensors that they hold."""

import pytest
import torch
from torch import nn

from fedcef.core.layout import Layout


@pytest.fixture
def tensors():
    return {
        "features.0.weight": torch.arange(24.0).view(2, 3, 4),
        "scale": torch.tensor(-1.0),
        "features.0.bias": torch.tensor([100.0, 101.0]),
        "classifier.weight": torch.full((1, 5), 7.0),
    }


def test_sizes(tensors):
    layout = Layout.of(tensors)
    assert layout.names == ("features.0.weight", "scale", "features.0.bias", "classifier.weight")
    assert layout.shapes == ((2, 3, 4), (), (2,), (1, 5))
    assert layout.sizes == (24, 1, 2, 5)
    assert layout.size == 32
    assert [(name, stretch.start, stretch.stop) for name, stretch, _ in layout.segments()] == [
        ("features.0.weight", 0, 24),
        ("scale", 24, 25),
        ("features.0.bias", 25, 27),
        ("classifier.weight", 27, 32),
    ]


def test_round_trip(tensors):
    layout = Layout.of(tensors)
    x = layout.flatten(tensors)
    assert x.shape == (32,)
    assert x[24:27].tolist() == [-1, 100, 101]
    back = layout.unflatten(x)
    assert list(back) == list(tensors)
    for name, tensor in tensors.items():
        assert back[name].shape == tensor.shape
        assert torch.equal(back[name], tensor)
    assert torch.equal(layout.flatten(back), x)


def test_flatten_goes_by_name_not_by_the_mapping_s_order(tensors):
    layout = Layout.of(tensors)
    assert torch.equal(layout.flatten(dict(reversed(tensors.items()))), layout.flatten(tensors))


@pytest.mark.parametrize("lead", [(3,), (2, 3), (0,)])
def test_a_stack_is_taken_apart_row_by_row(tensors, lead):
    layout = Layout.of(tensors)
    x = torch.arange(32.0 * torch.Size(lead).numel()).view(*lead, 32)
    parts = layout.unflatten(x)
    assert {name: part.shape for name, part in parts.items()} == {
        name: lead + shape for name, shape in zip(layout.names, layout.shapes, strict=True)
    }
    flat_rows = x.view(-1, 32)
    for i, row in enumerate(flat_rows):
        for name, part in layout.unflatten(row).items():
            assert torch.equal(parts[name].reshape(len(flat_rows), *part.shape)[i], part)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_the_parts_are_views(tensors, lead):
    layout = Layout.of(tensors)
    x = torch.zeros(*lead, 32)
    for part in layout.unflatten(x).values():
        assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        part.fill_(1.0)
    assert bool((x == 1).all())


def test_a_vector_of_the_wrong_length_is_refused(tensors):
    with pytest.raises(RuntimeError, match="31"):
        Layout.of(tensors).unflatten(torch.zeros(31))


def test_it_is_the_order_of_a_module_s_parameters():
    module = nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 2))
    parameters = dict(module.named_parameters())
    x = Layout.of(parameters).flatten(parameters)
    assert torch.equal(x, nn.utils.parameters_to_vector(module.parameters()))


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        (["*"], range(32)),
        (["*weight"], [*range(24), *range(27, 32)]),
        (["features.*"], [*range(24), 25, 26]),
        (["features.0.bias", "scale"], [24, 25, 26]),
        (["*.?.bias"], [25, 26]),
        (["[cs]*"], [24, *range(27, 32)]),
        (["SCALE"], []),
        (["weight"], []),
        ([], []),
    ],
)
def test_mask(tensors, patterns, chosen):
    mask = Layout.of(tensors).mask(patterns)
    assert mask.dtype == torch.bool
    assert mask.nonzero().squeeze(-1).tolist() == list(chosen)
