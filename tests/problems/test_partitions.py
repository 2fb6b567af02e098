import tomllib
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.problems.data.partitions import PARTITIONS, Deal, deal, partition
from fedcef.problems.data.partitions.sizes import proportional
from fedcef.runs.experiments import load_settings

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
        ("lognormal", 5, {"sigma": 0}, "sigma must be above 0 and at most 1e6, not 0"),
        ("lognormal", 5, {"sigma": float("inf")}, "sigma must be above 0"),
        ("zipf", 5, {"exponent": -1}, "exponent must be above 0"),
        ("zipf", 5, {"labels": "shards"}, "labels must be iid or dirichlet, not 'shards'"),
        ("zipf", 5, {"labels": "dirichlet", "alpha": 0}, "alpha must be above 0"),
        ("zipf", 21, {"min_size": 100}, "smaller min_size"),
    ],
)
def test_impossible_wishes_are_explained(name, num_clients, options, message):
    with pytest.raises(ConfigError, match=message):
        partition(name, TARGETS, num_clients, seed=0, **options)


# sizes


def sizes(name, num_clients=100, seed=0, **options):
    return deal(name, torch.arange(60_000) % 10, num_clients, seed, **options).sizes


def test_zipf_sizes_follow_their_ranks():
    """By hand: n = 30, w = 1, 1/2, 1/3, 1/4, 1/5, c = 30·60/137; the largest remainders get the rest."""
    found = deal("zipf", torch.zeros(30, dtype=torch.int64), 5, 0, min_size=1).sizes
    assert sorted(found.tolist(), reverse=True) == [13, 7, 4, 3, 3]  # of 13.14, 6.57, 4.38, 3.28, 2.63
    assert sizes("zipf", exponent=1e6, min_size=7).sort().values.tolist() == [7] * 99 + [60_000 - 99 * 7]


def test_lognormal_sizes_follow_their_distribution():
    """The logarithms of the sizes have the deviation sigma, and are symmetric."""
    logs = sizes("lognormal", 10_000, sigma=0.4, min_size=1).double().log()
    assert logs.std().item() == pytest.approx(0.4, rel=0.1)  # sizes around 6 are rounded
    logs = sizes("lognormal", 500, sigma=0.8, min_size=1).double().log()
    assert logs.std().item() == pytest.approx(0.8, rel=0.1)
    assert ((logs - logs.mean()) / logs.std()).pow(3).mean().item() == pytest.approx(0, abs=0.3)
    assert (sizes("lognormal", sigma=1e-6) == 600).all()


@pytest.mark.parametrize("name", ["lognormal", "zipf"])
@pytest.mark.parametrize("min_size", [1, 100, 599, 600])
def test_no_client_has_less_than_the_least_size(name, min_size):
    found = sizes(name, min_size=min_size)
    assert int(found.sum()) == 60_000
    assert int(found.min()) >= min_size
    if min_size == 100:  # those above it are as they would be among themselves
        free = sizes(name, min_size=1)
        above = found > 105
        ratio = found[above] / free[above]
        assert (ratio - ratio.mean()).abs().max() < 0.02


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    weights=st.lists(st.floats(0, 1e6), min_size=1, max_size=30).filter(lambda w: max(w) > 0),
    least=st.integers(1, 5),
    more=st.integers(0, 1000),
)
def test_sizes_add_up_and_are_nearest_to_their_law(weights, least, more):
    total = least * len(weights) + more
    found = proportional(torch.tensor(weights, dtype=torch.float64), total, least)
    assert int(found.sum()) == total
    assert int(found.min()) >= least
    large = [(w, n) for w, n in zip(weights, found.tolist(), strict=True) if n > least + 1]
    for (w1, n1), (w2, n2) in pairwise(large):
        assert n1 * w2 == pytest.approx(n2 * w1, abs=1.0001 * (w1 + w2))


@pytest.mark.parametrize("name", ["lognormal", "zipf"])
def test_labels_do_not_change_the_sizes(name):
    targets = torch.arange(2000) % 10
    plain, skewed = (deal(name, targets, 20, 0, labels=labels, alpha=0.1) for labels in ("iid", "dirichlet"))
    assert torch.equal(plain.sizes, skewed.sizes)
    assert torch.equal(skewed.rows.sort().values, torch.arange(2000))
    shares = [part.histogram(targets, 10) / part.sizes[:, None] for part in (plain, skewed)]
    assert float(shares[0].max(1).values.mean()) < 0.25
    assert float(shares[1].max(1).values.mean()) > 0.5


def test_skewed_labels_follow_a_dirichlet_distribution():
    """Equal sizes and classes: a share has mean 1/C and the variance of Dir(α) and of drawing n samples from it."""
    targets, alpha, clients = torch.arange(20_000) % 5, 2.0, 100
    options = {"sigma": 1e-6, "labels": "dirichlet", "alpha": alpha}
    shares = torch.cat(
        [deal("lognormal", targets, clients, s, **options).histogram(targets, 5) / 200 for s in range(10)]
    )
    dirichlet = (1 / 5) * (1 - 1 / 5) / (5 * alpha + 1)
    sampling = (1 / 5 * (1 - 1 / 5) - dirichlet) / 200
    assert shares.mean().item() == pytest.approx(1 / 5)
    assert shares.var().item() == pytest.approx(dirichlet + sampling, rel=0.08)


def test_classes_of_unequal_size_are_used_up():
    targets = torch.cat([torch.zeros(900), torch.full((90,), 3.0), torch.full((10,), 7.0)]).long()
    for alpha in (1e-3, 0.5, 1e6):
        found = deal("zipf", targets, 30, 0, labels="dirichlet", alpha=alpha, min_size=1)
        assert torch.equal(found.rows.sort().values, torch.arange(1000))
        assert found.histogram(targets, 8).sum(0).tolist() == [900, 0, 0, 90, 0, 0, 0, 10]


# natural clients


def test_a_column_says_whose_samples_are():
    column = torch.tensor([5, 5, 2, 9, 2, 2])
    parts = partition("by_column", torch.zeros(6, dtype=torch.int64), 3, 0, column=column, min_size=1)
    assert [sorted(part.tolist()) for part in parts] == [[2, 4, 5], [0, 1], [3]]  # client 2, 5, 9


def test_small_clients_are_left_out_and_the_seed_chooses_among_the_others():
    words = np.array(["b", "a", "b", "c", "b", "a", "d", "d"])
    targets = torch.zeros(8, dtype=torch.int64)
    chosen = set()
    for seed in range(30):
        found = deal("by_column", targets, 2, seed, column=words, min_size=2)
        names = tuple(str(words[int(part[0])]) for part in found.parts())
        assert names == tuple(sorted(names))
        assert all((words[part.numpy()] == name).all() for part, name in zip(found.parts(), names, strict=True))
        chosen.add(names)
    assert chosen == {("a", "b"), ("a", "d"), ("b", "d")}


def test_a_column_from_files_and_functions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("ids.npz", writer=COLUMN.numpy(), words=COLUMN.numpy().astype(str))
    np.save("ids.npy", COLUMN.numpy())
    (tmp_path / "columns_of_mine.py").write_text("import numpy\n\n\ndef ids():\n    return numpy.load('ids.npy')\n")
    expected = partition("by_column", TARGETS, 20, 0, column=COLUMN)
    for source in ("ids.npz:writer", "ids.npy", "columns_of_mine:ids", COLUMN.numpy(), COLUMN.tolist()):
        assert same(partition("by_column", TARGETS, 20, 0, column=source), expected)
    assert len(partition("by_column", TARGETS, 20, 0, column="ids.npz:words")) == 20


@pytest.mark.parametrize(
    ("column", "num_clients", "message"),
    [
        ("", 2, "data.column is ''; it must be a file such as ids.npz:key or ids.npy, or the import path"),
        ("ids.csv", 2, "it must be a file such as"),
        ("ids.npz", 2, "ids.npz holds writer; name one of them, as in ids.npz:writer"),
        ("ids.npz:reader", 2, "ids.npz holds writer"),
        ("no.npz:writer", 2, "there is no file no.npz"),
        ("bad.npz:writer", 2, "bad.npz cannot be read"),
        ("bad.npy", 2, "bad.npy cannot be read"),
        ("objects.npz:a", 2, "a cannot be read"),
        ("nowhere_at_all:ids", 2, "there is no module nowhere_at_all"),
        (COLUMN[:-1], 2, r"one value for each of the 2000 training samples; its shape is \(1999,\)"),
        (COLUMN.double(), 2, "whole numbers or words, one for each sample, not float64"),
        (COLUMN, 21, "of the 20 clients in data.column 20 have at least 10 samples, fewer than num_clients = 21"),
    ],
)
def test_columns_that_are_none_are_explained(tmp_path, monkeypatch, column, num_clients, message):
    monkeypatch.chdir(tmp_path)
    np.savez("ids.npz", writer=COLUMN.numpy())
    np.savez("objects.npz", a=np.array([{}, 1], dtype=object))
    for name in ("bad.npz", "bad.npy"):
        (tmp_path / name).write_bytes(b"no array")
    with pytest.raises(ConfigError, match=message):
        partition("by_column", TARGETS, num_clients, 0, column=column)


# the bits of every deal since the first version


def test_deals_are_what_they_always_were():
    """The same as client by client and shard by shard, as it was first written."""
    for seed, num_clients, count, classes in ((0, 10, 500, 10), (7, 37, 400, 5), (-3, 60, 777, 3), (2**40, 7, 90, 1)):
        targets = rng.permutation(rng.seed_key(seed), count) % classes * 2  # some numbers are no classes
        for name, slowly in {"iid": slow_iid, "dirichlet": slow_dirichlet, "shards": slow_shards}.items():
            options = {"dirichlet": {"alpha": 2.0, "min_size": 1}, "shards": {"classes_per_client": 1}}.get(name, {})
            parts = slowly(targets, num_clients, seed, **options)
            keys = [rng.data_key(seed, rng.Purpose.PARTITION, 3, i) for i in range(num_clients)]
            expected = [part[rng.permutation(key, len(part))] for part, key in zip(parts, keys, strict=True)]
            assert same(partition(name, targets, num_clients, seed, **options), expected), (name, seed)


def slow_iid(targets, num_clients, seed):
    return rng.permutation(rng.data_key(seed, rng.Purpose.PARTITION, 2), len(targets)).tensor_split(num_clients)


def slow_classes(targets, seed):
    order = rng.permutation(rng.data_key(seed, rng.Purpose.PARTITION, 0), len(targets))
    return [order[targets[order] == label] for label in targets.unique()]


def slow_dirichlet(targets, num_clients, seed, alpha, min_size):
    classes = slow_classes(targets, seed)
    for draw in rng.data_key(seed, rng.Purpose.PARTITION, 1, torch.arange(1000)).tolist():
        shares = np.random.default_rng(draw % 2**64).dirichlet(np.full(num_clients, alpha), size=len(classes))
        hands = [[] for _ in range(num_clients)]
        for samples, share in zip(classes, shares, strict=True):
            cuts = (share.cumsum() * len(samples)).astype(int)[:-1].tolist()
            for hand, part in zip(hands, samples.tensor_split(cuts), strict=True):
                hand.append(part)
        parts = [torch.cat(hand) for hand in hands]
        if min(map(len, parts)) >= min_size:
            return parts
    raise AssertionError("no draw has enough samples for everyone")


def slow_shards(targets, num_clients, seed, classes_per_client):
    classes = slow_classes(targets, seed)
    counts = [1] * len(classes)
    for _ in range(num_clients * classes_per_client - len(classes)):
        left = [len(c) / n if n < min(len(c), num_clients) else 0 for c, n in zip(classes, counts, strict=True)]
        counts[left.index(max(left))] += 1
    hands = [[] for _ in range(num_clients)]
    for number, (samples, count) in enumerate(zip(classes, counts, strict=True)):
        order = rng.permutation(rng.data_key(seed, rng.Purpose.PARTITION, 2, number), num_clients).tolist()
        order.sort(key=lambda client: len(hands[client]))
        for client, shard in zip(order, samples.tensor_split(count), strict=False):
            hands[client].append(shard)
    return [torch.cat(hand) for hand in hands]


def test_a_hopeless_dirichlet_deal_is_given_up_early():
    with pytest.raises(ConfigError, match=r"in 1 draw of Dirichlet\(0.1\) .* fewer than 10 samples, in the last one 1"):
        partition("dirichlet", torch.arange(20_000) % 10, 2000, seed=0, alpha=0.1)
    scales = r"in [2-9] draws .* fewer than 1 sample, .* or partition lognormal with labels = 'dirichlet'"
    with pytest.raises(ConfigError, match=scales):
        partition("dirichlet", torch.arange(800_000) % 10, 80_000, seed=0, alpha=0.5, min_size=1)


def test_a_run_writes_the_options_of_its_own_partition():
    """A run dealt in one of the first three ways writes what it always wrote."""
    always = {"name", "partition", "alpha", "min_size", "classes_per_client", "augment"}
    more = {"dirichlet": set(), "lognormal": {"sigma", "labels"}, "zipf": {"exponent", "labels"}}
    for name, options in more.items():
        table = tomllib.loads(load_settings("demo", [f"data.partition={name}"]).to_toml())["data"]
        assert set(table) == always | options
