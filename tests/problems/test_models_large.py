"""ResNet-18, the GPT and the LSTM: sizes, causality, rotations, options; and each of them in a run."""

import warnings

import pytest
import torch
from torch import nn

from fedcef import FedAvg, Problem, run
from fedcef.core.errors import ConfigError
from fedcef.problems.models import GPT, LSTM, ResNet18
from fedcef.problems.models.gpt import rotate, rotations
from fedcef.problems.source import seeded_model


def size(model):
    return sum(p.numel() for p in model.parameters())


def tokens(*shape, below=11, seed=0):
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(seed))


# ResNet-18


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_resnet18_has_the_known_number_of_parameters(norm):
    assert size(ResNet18((3, 32, 32), 10, norm=norm)) == 11_173_962


def test_resnet18_with_batch_normalisation_has_its_buffers_and_mixes_samples():
    model = ResNet18((1, 8, 8), 3, norm="batch", width=4)
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert len(norms) == 20
    assert len(list(model.buffers())) == 3 * 20
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    together = model(x)
    assert not torch.allclose(together[:2], model(x[:2]), atol=1e-3)
    model.eval()
    assert torch.allclose(model(x)[:2], model(x[:2]), atol=1e-5)
    assert together.shape == (4, 3)


def test_a_resnet_s_shape_is_that_of_the_paper():
    """Four stages, each after the first with half the resolution and twice the channels."""
    model, shapes = ResNet18((3, 32, 32), 10, width=8, groups=2), []
    for block in model.blocks:
        block.register_forward_hook(lambda *call: shapes.append(tuple(call[-1].shape[1:])))
    model(torch.zeros(1, 3, 32, 32))
    assert shapes == [shape for shape in [(8, 32, 32), (16, 16, 16), (32, 8, 8), (64, 4, 4)] for _ in range(2)]


def test_a_resnet_with_group_normalisation_runs():
    images = torch.randn(2, 6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = tokens(2, 6, below=3)
    model = seeded_model({"name": "resnet18", "width": 4, "groups": 2}, (1, 8, 8), 3, 0)
    problem = Problem.build(model, nn.functional.cross_entropy, list(zip(images, labels, strict=True)))
    history = run(problem, FedAvg(local_lr=0.05, local_steps=2), rounds=10, batch_size=0)
    assert history["train_loss"][-1] < 0.7 * history["train_loss"][0]


# GPT


def formula(layers, width, vocabulary):
    """The number of parameters that the module documents."""
    return layers * (4 * width**2 + 24 * width * -(-width // 3) + 2 * width) + width + vocabulary * width


@pytest.mark.parametrize(("layers", "heads", "width", "vocabulary"), [(1, 1, 2, 3), (3, 2, 12, 50), (2, 4, 32, 256)])
def test_a_gpt_has_as_many_parameters_as_the_formula_says(layers, heads, width, vocabulary):
    options = (layers, heads, width)
    assert size(GPT((8,), vocabulary, *options)) == formula(layers, width, vocabulary)
    assert size(GPT((8,), vocabulary, *options, tied=False)) == formula(layers, width, 2 * vocabulary)
    gelu = layers * (12 * width**2 + 2 * width) + width + vocabulary * width
    assert size(GPT((8,), vocabulary, *options, "gelu")) == gelu


def test_the_documented_sizes():
    sizes = [(4, 128), (8, 512), (12, 768), (10, 1024)]
    assert [formula(*shape, 256) for shape in sizes] == [824_448, 25_338_368, 85_150_464, 126_276_608]
    assert [formula(*shape, 50_257) for shape in sizes] == [7_224_576, 50_938_880, 123_551_232, 177_477_632]


@pytest.mark.parametrize("feed_forward", ["swiglu", "gelu"])
def test_a_gpt_sees_no_token_that_comes_later(feed_forward):
    torch.manual_seed(0)
    model = GPT((9,), 11, layers=2, heads=2, width=12, feed_forward=feed_forward).double()
    x = tokens(3, 9)
    outputs = model(x)
    assert outputs.shape == (3, 11, 9)
    later = x.clone()
    later[:, 5:] = (later[:, 5:] + 1) % 11
    changed = model(later)
    assert torch.allclose(changed[..., :5], outputs[..., :5], rtol=0, atol=1e-12)
    assert bool((changed[..., 5:] - outputs[..., 5:]).abs().amax(1).gt(1e-6).all())
    assert torch.allclose(model(x[:, :4]), outputs[..., :4], rtol=0, atol=1e-12)  # any context will do


def test_a_rotation_turns_pairs_by_their_position_s_angle():
    cos, sin = rotations(3, 4, torch.zeros((), dtype=torch.float64))
    angles = torch.tensor([[0.0, 0.0], [1.0, 0.01], [2.0, 0.02]], dtype=torch.float64)
    assert torch.allclose(cos, angles.cos(), rtol=0, atol=1e-15)
    assert torch.allclose(sin, angles.sin(), rtol=0, atol=1e-15)
    turned = rotate(torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64).expand(3, 4), (cos, sin))
    by_hand = torch.stack([angles[:, 0].cos(), -angles[:, 1].sin(), angles[:, 0].sin(), angles[:, 1].cos()], 1)
    assert torch.allclose(turned, by_hand, rtol=0, atol=1e-15)


def test_products_of_rotated_vectors_depend_on_their_distance_alone():
    a, b = torch.randn(2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turn = rotations(20, 8, a)
    queries, keys = rotate(a.expand(20, 8), turn), rotate(b.expand(20, 8), turn)
    products = queries @ keys.T
    for distance in range(-5, 6):
        diagonal = products.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), rtol=0, atol=1e-12)


def test_a_gpt_is_the_formula_written_out():
    """One block, one head, by matrices."""
    torch.manual_seed(1)
    model, x = GPT((4,), 7, layers=1, heads=1, width=6).double(), tokens(4, below=7)
    w = dict(model.named_parameters())

    def normed(v, scale):
        return v / (v.square().mean(-1, keepdim=True) + 1e-6).sqrt() * scale

    def block(name):
        return w[f"blocks.0.{name}.weight"]

    z = w["embedding.weight"][x]
    mixed = normed(z, block("attention_norm")) @ block("attention.input").T
    queries, keys, values = mixed.split(6, 1)
    turn = rotations(4, 6, z)
    scores = rotate(queries, turn) @ rotate(keys, turn).T / 6**0.5
    scores = scores.masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)
    z = z + scores.softmax(1) @ values @ block("attention.output").T
    gate, up = (normed(z, block("feed_forward_norm")) @ block("feed_forward.input").T).split(16, 1)
    z = z + (gate * gate.sigmoid() * up) @ block("feed_forward.output").T
    by_hand = normed(z, w["norm.weight"]) @ w["embedding.weight"].T
    assert torch.allclose(model(x.unsqueeze(0))[0].T, by_hand, rtol=0, atol=1e-12)


def test_tied_weights_are_in_the_flat_vector_once_and_follow_it():
    torch.manual_seed(0)
    model, x = GPT((5,), 11, layers=1, heads=2, width=8), tokens(2, 6)
    problem = Problem.build(model, nn.functional.cross_entropy, [(x[:, :-1], x[:, 1:])])
    assert "output.weight" not in problem.layout.names
    assert problem.dim == size(model)
    moved = problem.z0 * 1.5
    state = problem.state_dict(moved)
    assert torch.equal(state["output.weight"], state["embedding.weight"])
    direct = GPT((5,), 11, layers=1, heads=2, width=8)
    direct.load_state_dict(state)
    assert direct.output.weight is direct.embedding.weight
    assert torch.equal(problem.outputs(model, moved, x[:, :-1]), direct(x[:, :-1]))
    z = moved.clone().requires_grad_()
    gradient = torch.autograd.grad(problem.loss(problem.outputs(model, z, x[:, :-1]), x[:, 1:]), z)[0]
    nn.functional.cross_entropy(direct(x[:, :-1]), x[:, 1:]).backward()
    assert torch.equal(gradient, nn.utils.parameters_to_vector([p.grad for p in direct.parameters()]))


@pytest.mark.parametrize("oracle", ["loop", "stacked"])
@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_models_of_tokens_run(name, oracle):
    options = {"layers": 1, "width": 8} | ({"heads": 2} if name == "gpt" else {})
    x = tokens(2, 6, 8)
    clients = [(part[:, :-1], part[:, 1:]) for part in x]
    problem = Problem.build(seeded_model({"name": name, **options}, (7,), 11, 0), nn.functional.cross_entropy, clients)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of vmap, where torch has no kernel for several clients and goes through them
        history = run(problem, FedAvg(local_lr=0.5, local_steps=3), rounds=4, batch_size=6, oracle=oracle)
    assert history["train_loss"][-1] < 0.99 * history["train_loss"][0]


# LSTM


def test_an_lstm_reads_from_left_to_right():
    torch.manual_seed(0)
    model, x = LSTM((6,), 11, layers=2, width=5, embedding=3).double(), tokens(2, 6)
    outputs = model(x)
    assert outputs.shape == (2, 11, 6)
    assert torch.allclose(model(x[:, :3]), outputs[..., :3], rtol=0, atol=1e-12)
    assert size(LSTM((80,), 86)) == 86 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2) + 257 * 86


# options


@pytest.mark.parametrize(
    ("section", "shape", "sentence"),
    [
        ({"name": "gpt", "layer": 2}, (8,), "There is no setting model.layer; .* Did you mean model.layers"),
        ({"name": "gpt", "layers": 0}, (8,), "model.layers is 0; it must be greater than or equal to 1"),
        ({"name": "gpt", "width": 9, "heads": 2}, (8,), "model.width is 9; it must be an even multiple"),
        ({"name": "gpt", "feed_forward": "relu"}, (8,), "model.feed_forward is 'relu'; it must be 'swiglu' or 'gelu'"),
        ({"name": "gpt", "tied": "perhaps"}, (8,), "model.tied is 'perhaps'"),
        ({"name": "gpt"}, (1, 8, 8), "gpt reads tokens"),
        ({"name": "lstm", "width": 1.5}, (8,), "model.width is 1.5"),
        ({"name": "lstm"}, (1, 8, 8), "lstm reads tokens"),
        ({"name": "resnet18", "norm": "layer"}, (1, 8, 8), "model.norm is 'layer'; it must be 'group' or 'batch'"),
        ({"name": "resnet18", "groups": 24}, (1, 8, 8), "model.groups is 24; it must divide model.width = 64"),
        ({"name": "resnet18"}, (30,), "resnet18 takes images"),
        ({"name": "mlp", "width": 3}, (1, 8, 8), "There is no setting model.width; there are model.name"),
    ],
)
def test_options_that_do_not_fit(section, shape, sentence):
    with pytest.raises(ConfigError, match=sentence):
        seeded_model(section, shape, 3, 0)
