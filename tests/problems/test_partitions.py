import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcef.core.errors import ConfigError
from fedcef.problems.data.partitions import PARTITIONS, Deal, deal, partition

TARGETS = torch.arange(2000) % 10
COLUMN = torch.arange(2000) // 7 % 20
"""Natural clients, one for each of twenty."""


def needed(name, count=2000):
    """The options that a partition does not do without."""
    return {"column": COLUMN[:count]} if name == "by_column" else {}


def label_histogram(targets, parts, num_classes):
    return Deal.of(parts).histogram(targets, num_classes)


def same(first, second):
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def assert_covers_once(parts, count):
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(count))


@pytest.mark.parametrize("name", PARTITIONS)
def test_is_a_function_of_the_seed(name):
    parts = partition(name, TARGETS, 20, seed=3, **needed(name))
    assert len(parts) == 20
    assert_covers_once(parts, len(TARGETS))
    assert all(part.dtype == torch.int64 for part in parts)
    assert same(parts, partition(name, TARGETS, 20, seed=3, **needed(name)))
    assert not same(parts, partition(name, TARGETS, 20, seed=4, **needed(name)))


@pytest.mark.parametrize("name", PARTITIONS)
def test_samples_of_a_client_are_shuffled(name):
    """Neither in the order of the file nor class by class: a client may cut its samples into batches as they are."""
    parts = partition(name, TARGETS, 5, seed=0, **needed(name))
    for part in parts:
        assert not torch.equal(part, part.sort().values)
        changes = (TARGETS[part].diff() != 0).sum()
        assert changes > 2 * TARGETS[part].unique().numel()


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    name=st.sampled_from(sorted(set(PARTITIONS) - {"by_column"})),
    targets=st.lists(st.integers(0, 4), min_size=1, max_size=120),
    num_clients=st.integers(1, 12),
    seed=st.integers(-(2**31), 2**31),
)
def test_covers_once_or_says_why_not(name, targets, num_clients, seed):
    try:
        least = {"min_size": 1} if name in ("dirichlet", "lognormal", "zipf") else {}
        parts = partition(name, torch.tensor(targets), num_clients, seed, **least)
    except ConfigError as error:
        assert "take" in str(error) or "only" in str(error)  # noqa: PT017 - the alternative is a valid partition
        return
    assert len(parts) == num_clients
    assert min(map(len, parts)) >= 1
    assert_covers_once(parts, len(targets))


def test_iid_sizes_differ_by_one_at_most():
    sizes = [len(part) for part in partition("iid", TARGETS[:1003], 10, seed=0)]
    assert max(sizes) - min(sizes) == 1


def skew(alpha):
    """Mean over clients of the largest class's share of the client's samples."""
    counts = label_histogram(TARGETS, partition("dirichlet", TARGETS, 10, seed=0, alpha=alpha), 10)
    return (counts.max(dim=1).values / counts.sum(dim=1)).mean().item()


def test_small_alpha_is_skewed_and_large_alpha_is_not():
    assert skew(0.1) > 0.4
    assert skew(100) < 0.2


def test_dirichlet_shares_follow_their_distribution():
    """A client's share of a class is Beta(α, (N-1)α): mean 1/N, variance (1/N)(1-1/N)/(Nα+1)."""
    alpha, clients = 2.0, 5
    shares = torch.cat(
        [
            label_histogram(TARGETS, partition("dirichlet", TARGETS, clients, seed, alpha=alpha, min_size=1), 10) / 200
            for seed in range(60)
        ]
    )
    assert shares.mean().item() == pytest.approx(1 / clients)
    expected = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert shares.var().item() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("min_size", [1, 50, 100])
def test_dirichlet_draws_until_every_client_has_enough(min_size):
    parts = partition("dirichlet", TARGETS, 10, seed=1, alpha=0.5, min_size=min_size)
    assert min(map(len, parts)) >= min_size


def test_dirichlet_gives_up_with_advice():
    with pytest.raises(ConfigError, match="larger alpha, fewer clients or a smaller min_size"):
        partition("dirichlet", TARGETS, 100, seed=0, alpha=0.01)


@pytest.mark.parametrize("alpha", [1e-6, 1e6])
def test_dirichlet_survives_extreme_alpha(alpha):
    assert_covers_once(partition("dirichlet", TARGETS, 2, seed=0, alpha=alpha), len(TARGETS))


@pytest.mark.parametrize("classes_per_client", [1, 2, 3, 10])
@pytest.mark.parametrize("num_clients", [10, 37])
def test_shards_give_exactly_that_many_classes(num_clients, classes_per_client):
    counts = label_histogram(
        TARGETS, partition("shards", TARGETS, num_clients, 0, classes_per_client=classes_per_client), 10
    )
    assert ((counts > 0).sum(dim=1) == classes_per_client).all()


def test_shards_of_unequal_classes_are_of_similar_size():
    targets = torch.cat([torch.zeros(900), torch.ones(300), torch.full((300,), 2.0), torch.full((300,), 3.0)]).long()
    counts = label_histogram(targets, partition("shards", targets, 12, seed=0), 4)
    assert torch.equal((counts > 0).sum(dim=0), torch.tensor([12, 4, 4, 4]))
    assert ((counts > 0).sum(dim=1) == 2).all()
    assert counts.sum(dim=1).tolist() == [150] * 12


def test_histogram_counts_labels_and_keeps_absent_classes():
    targets = torch.tensor([0, 2, 2, 1])
    counts = label_histogram(targets, [torch.tensor([1, 2]), torch.tensor([0, 3])], num_classes=4)
    assert counts.tolist() == [[0, 0, 2, 0], [1, 1, 0, 0]]


@pytest.mark.parametrize(
    ("name", "num_clients", "options", "message"),
    [
        ("nope", 2, {}, "there are iid, dirichlet, shards, lognormal, zipf, by_column"),
        ("iid", 2001, {}, "2001 clients cannot share 2000 samples"),
        ("iid", 0, {}, "num_clients must be a whole number"),
        ("iid", 2, {"alpha": 1}, "iid has no option alpha; it has none"),
        ("shards", 5, {"alpha": 1}, "no option alpha; it has classes_per_client"),
        ("dirichlet", 2, {"alpha": 0}, "alpha must be above 0"),
        ("dirichlet", 2, {"alpha": float("nan")}, "alpha must be above 0"),
        ("dirichlet", 2, {"alpha": "much"}, "alpha must be above 0"),
        ("dirichlet", 2, {"min_size": 0}, "min_size must be a whole number"),
        ("dirichlet", 21, {"min_size": 100}, "smaller min_size"),
        ("shards", 5, {"classes_per_client": 11}, "only 10 classes"),
        ("shards", 5, {"classes_per_client": 2.0}, "classes_per_client must be a whole number"),
        ("shards", 3, {"classes_per_client": 2}, "cannot hold all 10 classes"),
        ("shards", 1001, {"classes_per_client": 2}, "too few samples for 2002 shards"),
    ],
)
def test_impossible_wishes_are_explained(name, num_clients, options, message):
    with pytest.raises(ConfigError, match=message):
        partition(name, TARGETS, num_clients, seed=0, **options)
