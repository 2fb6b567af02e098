"""Dropout: masks that are a function of round, client, step and place, the same in every oracle and thread."""

import threading
from dataclasses import replace
from math import prod

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.masks import Chance
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.dropout import Copy, Masks, draws_itself, has_dropout
from fedcef.oracles.loop import ClientLoop
from fedcef.oracles.oracle import make_oracle
from fedcef.oracles.stacked import Stacked
from fedcef.problems.client_data import PooledData
from fedcef.problems.problem import Problem

KEY = rng.seed_key(5)


def problem(*layers, sizes=(6, 6, 6), shape=(6,)):
    torch.manual_seed(0)
    model = nn.Sequential(*(layers or (nn.Linear(6, 40), nn.Dropout(0.5), nn.Linear(40, 3)))).double()
    g = torch.Generator().manual_seed(0)
    data = [(torch.randn(n, *shape, generator=g).double(), torch.randint(0, 3, (n,), generator=g)) for n in sizes]
    return Problem.build(model, cross_entropy, data)


def of_round(oracle, number=0, clients=None):
    return oracle.for_round(Rounds(Training(seed=7), oracle.problem.num_clients).at(number, clients), 3)


def options(batch_size=0, **more):
    return Training(seed=7, batch_size=batch_size, **more)


def layer(module):
    """A layer by itself, which draws from KEY."""
    copy = Copy.of(nn.Sequential(module))

    def call(x):
        copy.masks.start(KEY)
        return copy.model(x)

    return call


# Masks


def test_the_bits_of_a_key_go_on_from_any_place():
    keys = rng.fold(KEY, torch.arange(3))
    assert torch.equal(rng.bits(keys, 4, 3), rng.bits(keys, 7)[:, 3:])


def test_four_entries_of_sixteen_bits_come_from_each_hash():
    keys = rng.fold(KEY, torch.arange(3))
    words, entries = rng.bits(keys, 3, 2), rng.short_bits(keys, 10, 2)
    assert entries.dtype == torch.int16
    for i in range(10):
        unsigned = entries[:, i].to(torch.int64) & 0xFFFF
        assert torch.equal(unsigned, words[:, i // 4] >> 16 * (i % 4) & 0xFFFF)


@pytest.mark.parametrize("p", [0.25, 0.5, 0.1, 1 / 3])
def test_entries_are_dropped_with_the_nearest_probability_and_the_mean_is_one(p):
    chance = Chance.of(p)
    assert abs(chance.kept / 2**16 - (1 - p)) <= 2**-17
    assert chance.scale * chance.kept / 2**16 == 1.0
    count = 1 << 18
    kept = chance.draw(KEY, count, 0).double().mean()
    assert abs(float(kept) - (1 - p)) < 4 * (p * (1 - p) / count) ** 0.5


def test_one_half_is_the_sign_bit():
    assert torch.equal(Chance.of(0.5).draw(KEY, 9, 4), rng.short_bits(KEY, 9, 4) < 0)


def test_masks_of_a_pass_follow_each_other_and_begin_again_with_it():
    masks, half = Masks(), Chance.of(0.5)
    masks.start(KEY)
    first, second = masks.draw(half, (2, 3)), masks.draw(half, (5,))
    assert torch.equal(first.flatten(), half.draw(KEY, 6, 0))
    assert torch.equal(second, half.draw(KEY, 5, 2))  # six entries took two hashes
    masks.start(KEY)
    assert torch.equal(masks.draw(half, (2, 3)), first)


# Layers


@pytest.mark.parametrize(
    ("kind", "shape", "of_mask"),
    [
        (nn.Dropout, (3, 4, 5), (3, 4, 5)),
        (nn.AlphaDropout, (3, 4, 5), (3, 4, 5)),
        (nn.Dropout1d, (3, 4, 5), (3, 4, 1)),
        (nn.Dropout1d, (4, 5), (4, 1)),
        (nn.Dropout2d, (3, 4, 5, 2), (3, 4, 1, 1)),
        (nn.Dropout3d, (3, 4, 2, 3, 2), (3, 4, 1, 1, 1)),
        (nn.Dropout3d, (4, 2, 3, 2), (4, 1, 1, 1)),
        (nn.FeatureAlphaDropout, (3, 4, 5), (3, 4, 1)),
    ],
)
def test_a_layer_does_what_torchs_does_with_the_same_mask(kind, shape, of_mask, monkeypatch):
    x = torch.arange(1, prod(shape) + 1).view(shape).double()
    torch.manual_seed(3)
    theirs = kind(0.25)(x)
    dropped = (theirs / x).abs() < 0.25 if "Alpha" not in kind.__name__ else theirs < 0
    assert 0 < int(dropped.sum()) < dropped.numel()
    asked = []

    def draw(self, chance, shape):
        asked.append(shape)
        return ~dropped[tuple(slice(n) for n in shape)]

    monkeypatch.setattr(Masks, "draw", draw)
    torch.testing.assert_close(layer(kind(0.25))(x), theirs, rtol=1e-14, atol=1e-14)
    assert asked == [of_mask]


@pytest.mark.parametrize("p", [0.0, 1.0])
@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout1d, nn.AlphaDropout])
def test_nothing_or_everything_is_dropped(kind, p):
    x = torch.randn(3, 4, 5)
    assert torch.equal(layer(kind(p))(x), kind(p)(x))


def test_in_place():
    x = torch.ones(3, 4)
    found = layer(nn.Dropout(0.5, inplace=True))(x)
    assert found is x
    assert set(x.flatten().tolist()) == {0.0, 2.0}


def test_a_layer_that_is_called_twice_draws_twice():
    module = nn.Dropout(0.5)
    found = layer(nn.Sequential(module, module))(torch.ones(400))
    half = Chance.of(0.5)
    assert torch.equal(found, 4.0 * half.draw(KEY, 400, 0) * half.draw(KEY, 400, 100))


def test_bfloat16_keeps_the_mean():
    """Torch rounds 1/(1 - p) to eight bits on a CPU; here only the product is rounded."""
    found = layer(nn.Dropout(0.25))(torch.full((999,), 3.0, dtype=torch.bfloat16))
    assert set(found.tolist()) == {0.0, 4.0}


def test_the_model_itself_is_left_alone():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval()
    copy = Copy.of(model)
    assert copy.model.training
    assert not model.training
    assert torch.equal(model[1](torch.ones(9)), torch.ones(9))
    assert "forward" not in vars(model[1])


# In oracles


@pytest.mark.parametrize("kind", [ClientLoop, Stacked])
def test_masks_are_a_function_of_round_client_and_step(kind):
    task = problem()
    oracle, x = kind(task, options()), task.z0
    torch.manual_seed(1)
    first = of_round(oracle)(x, 0)
    torch.manual_seed(2)
    torch.rand(17)
    assert torch.equal(of_round(oracle)(x, 0), first)
    assert torch.equal(of_round(kind(task, options()))(x, 0), first)
    assert not torch.equal(of_round(oracle)(x, 1), first)  # the samples are the same: only the masks differ
    assert not torch.equal(of_round(oracle, number=1)(x, 0), first)
    alone = of_round(oracle, clients=torch.tensor([2]))(x, 0)[0]
    assert torch.allclose(alone, first[2], rtol=0, atol=1e-14)
    if kind is ClientLoop:
        assert torch.equal(alone, first[2])


def test_gradients_are_those_of_the_network_with_these_masks():
    task = problem()
    round_ = Rounds(Training(seed=7), 3).at(0)
    found = of_round(ClientLoop(task, options()))(task.z0, 2)
    for i in range(3):
        mask = Chance.of(0.5).draw(round_.dropout(2)[i], 6 * 40, 0).view(6, 40)
        samples, weights = task.client_samples(i), task.layout.unflatten(task.z0.clone().requires_grad_())
        hidden = (samples.inputs @ weights["0.weight"].T + weights["0.bias"]) * mask * 2
        loss = cross_entropy(hidden @ weights["2.weight"].T + weights["2.bias"], samples.targets)
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(weights.values()))])
        assert torch.allclose(found[i], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [nn.Dropout, nn.AlphaDropout, nn.Dropout1d, nn.Dropout2d, nn.FeatureAlphaDropout])
@pytest.mark.parametrize("batch_size", [0, 4])
def test_stacked_and_loop_draw_the_same(kind, batch_size):
    channels = () if kind in (nn.Dropout, nn.AlphaDropout) else (nn.Unflatten(1, (8, 5)),)
    channels = (nn.Unflatten(1, (8, 5, 1)),) if kind is nn.Dropout2d else channels
    layers = (nn.Linear(6, 40), *channels, kind(0.4), nn.Flatten(), nn.ReLU(), nn.Dropout(0.2), nn.Linear(40, 3))
    task = problem(*layers)
    x = task.z0 + 0.1 * torch.randn(3, task.dim, generator=torch.Generator().manual_seed(1)).double()
    stacked, loop = (of_round(oracle(task, options(batch_size))) for oracle in (Stacked, ClientLoop))
    for k in range(2):
        torch.testing.assert_close(stacked(x, k), loop(x, k), rtol=0, atol=1e-12)


def test_threads_do_not_disturb_each_other():
    task = problem(sizes=(6,) * 12)
    seen = set()
    watched = Masks.start

    def start(self, key):
        seen.add(threading.get_ident())
        watched(self, key)

    one, three = (of_round(ClientLoop(task, options(), workers=n)) for n in (1, 3))
    expected = one(task.z0, 1)
    Masks.start = start
    try:
        for _ in range(5):
            assert torch.equal(three(task.z0, 1), expected)
    finally:
        Masks.start = watched
    assert len(seen) > 1


def test_dropout_is_on_even_if_the_module_came_in_evaluation_mode():
    task = problem()
    task.model.eval()
    oracle = of_round(ClientLoop(task, options()))
    assert not torch.equal(oracle(task.z0, 0), oracle(task.z0, 1))
    assert not task.model.training


@pytest.mark.parametrize("kind", ["loop", "stacked"])
def test_a_deployed_client_draws_as_in_the_simulator(kind):
    task = problem()
    who = torch.tensor([2])
    alone = replace(task, data=PooledData.of([task.client_samples(2)]))
    expected = of_round(make_oracle(task, options(4, oracle=kind)), clients=who)(task.z0, 1)
    round_ = Rounds(Training(seed=7), 3).at(0, who)
    oracle = make_oracle(alone, options(4, oracle=kind)).for_round(round_, 3, rows=torch.zeros(1, dtype=torch.int64))
    assert torch.equal(oracle(task.z0, 1), expected)


# Layers that draw for themselves


class Attention(nn.Module):
    def __init__(self, p=0.5):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(6, 2, 12, dropout=p, batch_first=True)

    def forward(self, x):
        return self.inner(x.unsqueeze(1).expand(-1, 3, -1)).mean(1)


class OwnDropout(nn.Dropout):
    def forward(self, x):
        return super().forward(x) + 1


def test_dropout_is_found():
    assert has_dropout(problem().model)
    assert has_dropout(nn.Sequential(nn.Sequential(nn.Dropout2d(0.1))))
    assert not has_dropout(nn.Sequential(nn.Linear(2, 2), Attention(0.0).inner.self_attn, nn.LSTM(2, 2, 1)))
    assert not draws_itself(problem().model)
    for module in (Attention(), nn.LSTM(2, 2, 2, dropout=0.1), nn.RReLU(), OwnDropout()):
        assert has_dropout(nn.Sequential(module))
        assert draws_itself(nn.Sequential(module))


@pytest.mark.parametrize("module", [Attention, OwnDropout])
def test_a_layer_that_draws_inside_gets_a_seeded_generator(module):
    task = problem(nn.Linear(6, 6), module(), nn.Linear(6, 3))
    oracle = make_oracle(task, options())
    assert isinstance(oracle, ClientLoop)
    assert not oracle.captures
    before = torch.random.get_rng_state()
    first, again = of_round(oracle)(task.z0, 0), of_round(ClientLoop(task, options()))(task.z0, 0)
    assert torch.equal(first, again)
    assert not torch.equal(of_round(oracle)(task.z0, 1), first)
    assert torch.equal(torch.random.get_rng_state(), before)
    with pytest.raises(ConfigError, match=r"layer that draws them inside .*; use oracle = 'loop'\.$"):
        make_oracle(task, options(oracle="stacked"))


# Captured rounds


def test_what_a_graph_can_hold():
    assert ClientLoop(problem(), options(4)).captures
    assert Stacked(problem(), options(4)).captures
    unequal = problem(sizes=(3, 5, 4))
    assert ClientLoop(unequal, options(0)).captures
    assert ClientLoop(unequal, options(0, clients_per_round=3)).captures
    assert not ClientLoop(unequal, options(0, clients_per_round=2)).captures
    assert not ClientLoop(unequal, options(0, cohort_chunk=2)).captures
