"""A population drawn over a data set: the right distribution, from (seed, client) alone, and nothing stored."""

import re
import tracemalloc

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn.functional import cross_entropy

from fedcef import FedAvg, FedCEF, Problem, clients, run
from fedcef.core.errors import ConfigError, ProblemError
from fedcef.core.rng import Purpose, data_key
from fedcef.problems.client_data import PooledData
from fedcef.problems.clients.drawn import log_gamma_variates
from fedcef.runs.settings import Settings


def pool(count=300, classes=4):
    g = torch.Generator().manual_seed(0)
    targets = torch.multinomial(torch.arange(1.0, classes + 1), count, replacement=True, generator=g)
    return torch.arange(float(count)).unsqueeze(1) / count, targets


def population(num_clients=1_000_000, size=20, alpha=0.5, seed=0, **options):
    return clients.drawn(*pool(**options), num_clients=num_clients, size=size, alpha=alpha, seed=seed)


def keys(count, seed=0):
    return data_key(seed, Purpose.PARTITION, 64, torch.arange(count))


@pytest.mark.parametrize("alpha", [0.02, 0.5, 1.0, 7.0, 1e4])
def test_gamma_variates(alpha):
    found = log_gamma_variates(keys(20_000), alpha).numpy()
    assert stats.kstest(found, stats.loggamma(alpha).cdf).pvalue > 1e-3
    assert stats.kstest(found, stats.loggamma(1.1 * alpha + 0.02).cdf).pvalue < 1e-3  # it can tell


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_mixtures_are_dirichlet(alpha):
    """Each share is Beta(α, (C-1)α), and the sum of two of them Beta(2α, (C-2)α)."""
    mixtures = population(alpha=alpha).mixtures(torch.arange(10_000))
    assert torch.allclose(mixtures.sum(-1), torch.ones(10_000, dtype=torch.float64), rtol=0, atol=1e-14)
    for share in mixtures.T:
        assert stats.kstest(share.numpy(), stats.beta(alpha, 3 * alpha).cdf).pvalue > 1e-3
    assert stats.kstest(mixtures[:, :2].sum(-1).numpy(), stats.beta(2 * alpha, 2 * alpha).cdf).pvalue > 1e-3


def test_samples_follow_the_mixture_and_are_uniform_within_a_class():
    data, (_, targets) = population(size=100_000, alpha=2.0), pool()
    who = torch.tensor([7])
    numbers = data.numbers(who, torch.arange(100_000).unsqueeze(0))[0]
    expected = data.mixtures(who)[0][targets] / targets.bincount()[targets]  # of each sample of the pool
    counts = numbers.bincount(minlength=len(targets))
    assert stats.chisquare(counts.numpy(), (100_000 * expected / expected.sum()).numpy()).pvalue > 1e-3


def test_a_client_is_the_same_in_any_cohort():
    data = population()
    who, rows = torch.tensor([3, 77, 123_456, 999_999]), torch.arange(20).expand(4, -1)
    together = data.numbers(who, rows)
    for i, client in enumerate(who.tolist()):
        assert torch.equal(data.numbers(who[i : i + 1], rows[:1])[0], together[i])
        back = data.numbers(who[[3, i]], rows[:2].flip(-1))[1].flip(-1)
        assert torch.equal(back, together[i])
        samples = data.samples(client)
        assert torch.equal(samples.inputs, data.pool.inputs[together[i]])
        assert torch.equal(data.samples(client, 5).targets, samples.targets[:5])
    assert torch.equal(data.tables(who).targets, data.pool.targets[together])
    assert torch.equal(data.batches(who, rows.view(4, 5, 4))(2).inputs, data.pool.inputs[together[:, 8:12]])


def test_clients_and_seeds_differ():
    first, other = population().samples(0, 20), population(seed=1).samples(0, 20)
    assert not torch.equal(first.inputs, other.inputs)
    assert not torch.equal(first.inputs, population().samples(1).inputs)


def test_few_classes_by_a_small_alpha_and_all_by_a_large_one():
    for alpha, low, high in ((0.01, 1.0, 1.2), (1000.0, 3.9, 4.0)):
        tables = population(alpha=alpha, size=50).tables(torch.arange(200)).targets
        kinds = torch.tensor([len(row.unique()) for row in tables]).double().mean()
        assert low <= kinds <= high


def test_a_million_clients_cost_nothing_until_they_take_part():
    population(10)  # whatever is loaded on first use
    tracemalloc.start()
    data = population()
    built, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    stored = sum(t.untyped_storage().nbytes() for t in vars(data).values() if isinstance(t, torch.Tensor))
    assert built + stored < 20_000  # all of them together; the pool is the user's
    assert data.sizes.untyped_storage().nbytes() == 8
    assert data.num_clients == 1_000_000


@pytest.mark.parametrize("method", [FedCEF(local_lr=0.1, local_steps=2), FedAvg(local_lr=0.1, local_steps=2)])
@pytest.mark.parametrize("batch_size", [0, 4])
def test_a_run_has_the_bits_of_the_same_clients_in_one_table(method, batch_size):
    def build(data):
        torch.manual_seed(0)
        return Problem.build(nn.Linear(1, 4), cross_entropy, data, test=pool())

    data = population(30)
    options = {"rounds": 3, "eval_every": 1, "batch_size": batch_size, "clients_per_round": 5}
    found, expected = (
        run(build(d), method, **options) for d in (data, PooledData.of([data.samples(i) for i in range(30)]))
    )
    for one, other in zip(found.records, expected.records, strict=True):
        assert one | {"wall_s": 0} == other | {"wall_s": 0}


def test_from_settings():
    config = Settings(
        num_clients=1_000_000, data={"name": "digits", "partition": "drawn", "alpha": 0.1, "samples_per_client": 7}
    )
    problem = config.build_problem()
    assert problem.num_clients == 1_000_000
    assert problem.equal_sizes
    assert len(problem.client_samples(999_999)) == 7
    assert "samples_per_client = 7" in config.to_toml()
    assert "samples_per_client" not in Settings().to_toml()
    again = Settings(**{**config.model_dump(), "seed": 1}).build_problem()
    assert not torch.equal(again.client_samples(5).inputs, problem.client_samples(5).inputs)
    with pytest.raises(ConfigError, match=r"data.samples_per_client is not for the partition iid; leave it out\.$"):
        Settings(data={"name": "digits", "partition": "iid", "samples_per_client": 7}).build_problem()
    with pytest.raises(ConfigError, match=r"it must be one of iid, .*drawn"):
        Settings(data={"name": "digits", "partition": "dawn"}).build_problem()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_clients": 0}, "num_clients is 0; it must be greater than or equal to 1."),
        ({"size": 0}, "size is 0; it must be"),
        ({"alpha": 0.0}, "alpha is 0.0; it must be greater than 0."),
        ({"alpha": float("nan")}, "alpha is nan; it must be"),
    ],
)
def test_options_that_cannot_be(options, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        population(**options)


def test_a_pool_without_classes():
    with pytest.raises(ProblemError, match="are not one class number for each sample"):
        clients.drawn(pool()[0], pool()[0], num_clients=3)


def test_a_label_that_the_model_has_no_output_for():
    with pytest.raises(ProblemError, match=r"^The pool has the label 3, but the model has 3 outputs"):
        Problem.build(nn.Linear(1, 3), cross_entropy, population())
