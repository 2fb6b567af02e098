"""Minibatches without replacement: a shuffle of which only the places that are needed are computed."""

from collections import Counter

import pytest
import torch
from torch import nn

from fedcef import FedAvg, Problem, Training, run
from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.oracles.oracle import make_oracle
from fedcef.problems.draws import epochs, steps_of_epochs
from fedcef.runs.settings import Settings

SIZES = torch.tensor([1, 2, 7, 50, 64, 100_000])
KEYS = rng.fold(rng.seed_key(1), torch.arange(len(SIZES)))


def shuffled(key, size, count):
    """The shuffle as it is usually written, over all samples."""
    order, out = [], []
    for i, number in enumerate(rng.bits(key, count).tolist()):
        place = i % size
        order = order if place else list(range(size))
        other = place + number % (size - place)
        order[place], order[other] = order[other], order[place]
        out.append(order[place])
    return out


@pytest.mark.parametrize("count", [1, 2, 3, 50, 150])
def test_it_is_the_shuffle_of_fisher_and_yates(count):
    found = epochs(KEYS, SIZES, count)
    assert found.tolist() == [shuffled(key, int(n), count) for key, n in zip(KEYS, SIZES, strict=True)]


def test_every_epoch_has_every_sample_once():
    found = epochs(KEYS, SIZES, 150)
    for row, size in zip(found[:5], SIZES[:5].tolist(), strict=True):
        for epoch in row[: 150 // size * size].view(-1, size):
            assert sorted(epoch.tolist()) == list(range(size))
        rest = row[150 // size * size :]
        assert len(set(rest.tolist())) == len(rest)
    assert len(set(found[5].tolist())) == 150
    assert not torch.equal(found[3, :50], found[3, 50:100])  # another epoch, another order


def test_all_orders_are_equally_frequent():
    keys = rng.fold(rng.seed_key(2), torch.arange(24_000))
    counts = Counter(map(tuple, epochs(keys, torch.full((24_000,), 4), 4).tolist()))
    assert len(counts) == 24
    squares = sum((n - 1000) ** 2 / 1000 for n in counts.values())
    assert squares < 49.7  # chi-square with 23 degrees of freedom: exceeded once in a thousand times


def test_fewer_draws_are_the_first_of_more_and_others_do_not_matter():
    found = epochs(KEYS, SIZES, 90)
    assert torch.equal(epochs(KEYS, SIZES, 33), found[:, :33])
    assert torch.equal(epochs(KEYS[2:4], SIZES[2:4], 90), found[2:4])


def test_a_client_with_more_samples_than_memory_would_hold():
    found = epochs(KEYS[:1], torch.tensor([10**12]), 500)
    assert len(set(found[0].tolist())) == 500
    assert 0 <= int(found.min()) < int(found.max()) < 10**12


# In a round


def problem(sizes):
    clients = [(torch.arange(float(n)).view(-1, 1), torch.zeros(n, 1)) for n in sizes]  # a sample is its number
    return Problem.build(nn.Linear(1, 1), nn.functional.mse_loss, clients)


def batches_of(task, number=0, **options):
    training = Training(seed=3, batches="epochs", **options)
    round_ = Rounds(training, task.num_clients).at(number)
    take = make_oracle(task, training).batches(round_, round_.clients, 5)
    return torch.stack([take(k).inputs.squeeze(-1) for k in range(5)], 1)  # (S, K, B)


@pytest.mark.parametrize("oracle", ["loop", "stacked"])
def test_steps_go_through_the_samples_and_batches_straddle_epochs(oracle):
    found = batches_of(problem((10, 15, 4)), batch_size=4, oracle=oracle).flatten(1)
    assert sorted(found[0, :10].tolist()) == sorted(found[0, 10:].tolist()) == list(range(10))
    assert sorted(found[1, :15].tolist()) == list(range(15))
    assert [sorted(epoch) for epoch in found[2].view(5, 4).tolist()] == [[0, 1, 2, 3]] * 5
    assert not torch.equal(batches_of(problem((10, 15, 4)), 1, batch_size=4).flatten(1), found)


def test_one_epoch_of_full_batches_is_the_whole_gradient():
    """At one point, the mean of an epoch's gradients is the gradient on all samples."""
    task = problem((12, 12))
    training = Training(seed=3, batch_size=3, batches="epochs")
    round_ = Rounds(training, 2).at(0)
    oracle = make_oracle(task, training).for_round(round_, 4)
    mean = torch.stack([oracle(task.z0, k) for k in range(4)]).mean(0)
    whole = make_oracle(task, Training(batch_size=0)).for_round(round_, 1)(task.z0, 0)
    torch.testing.assert_close(mean, whole, rtol=1e-6, atol=1e-6)


def test_epochs_are_an_option_everywhere():
    task = problem((6, 6))
    drawn, shuffled = (run(task, FedAvg(local_lr=1e-3), rounds=1, batch_size=3, batches=b) for b in ("drawn", "epochs"))
    assert not torch.equal(drawn.parameters["weight"], shuffled.parameters["weight"])
    assert "batches" not in Settings().to_toml()
    assert 'batches = "epochs"' in Settings(batches="epochs").to_toml()
    with pytest.raises(ConfigError, match=r"^batches is 'all'; it must be 'drawn' or 'epochs'\.$"):
        Training(batches="all")
    with pytest.raises(ConfigError, match=r"^With batch_size = 0 every step takes all samples; give a batch_size, or"):
        make_oracle(task, Training(batch_size=0, batches="epochs"))


def test_steps_of_an_epoch():
    assert steps_of_epochs(torch.tensor([50, 50]), 10) == 5
    assert steps_of_epochs(torch.tensor([53]), 10) == 6
    assert steps_of_epochs(torch.tensor([53]), 10, epochs=3) == 16
    with pytest.raises(
        ConfigError, match=r"^The clients have between 5 and 7 samples .* choose local_steps yourself\.$"
    ):
        steps_of_epochs(torch.tensor([5, 7]), 2)
    with pytest.raises(ConfigError, match=r"got 0 and 1\.$"):
        steps_of_epochs(torch.tensor([5, 5]), 0)
