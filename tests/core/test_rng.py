"""Counter-based randomness: known values, independence of order and shape, and plain statistics."""

from itertools import pairwise

import pytest
import torch

from fedcef.core import rng
from fedcef.core.rng import Purpose

PURPOSES = list(Purpose)


def test_bits_are_splitmix64_s():
    """The first outputs of the reference implementation (Vigna, splitmix64.c) from state 0."""
    reference = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]
    assert [b % 2**64 for b in rng.bits(torch.tensor(0), 5).tolist()] == reference


def test_golden_values():
    """A change here changes every run ever recorded."""
    key = rng.seed_key(0)
    assert int(key) == -2152535657050944081
    assert int(rng.fold(key, 0)) == 2077113891230206638
    assert int(rng.fold(key, 7)) == -4104591443894043817
    of_round = rng.round_key(3, 5, torch.arange(3))
    assert int(of_round.shared) == -516252214450741640
    assert of_round.own.tolist() == [1596367175814743245, -1936110970010891725, 1666735021086393762]
    folded = [-2558374617028061571, -3590780922087220319, -4104855598151401793]
    assert of_round.fold(Purpose.COMPRESSION).own.tolist() == folded
    assert rng.bits(key, 3).tolist() == [-6411193824288604561, -5511663747979980962, 7141179953334974231]
    assert rng.uniform(key, 3).tolist() == [0.6524484863740322, 0.7012121095215252, 0.3871241409757855]
    assert rng.integers(key, 6, torch.tensor(10)).tolist() == [7, 7, 5, 9, 1, 6]
    assert rng.permutation(key, 8).tolist() == [0, 3, 1, 6, 4, 5, 7, 2]
    assert rng.subset(key, 100, 5).tolist() == [9, 13, 14, 24, 85]
    expected = torch.tensor([0.3919393499913912, 0.527889862899307, -0.2868224373089716], dtype=torch.float64)
    assert torch.allclose(rng.normal(key, 3), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**62, 2**63 - 1, 2**63, 2**64 + 5, -(10**30)])
def test_any_integer_is_a_seed(seed):
    assert rng.seed_key(seed).dtype == torch.int64
    assert int(rng.seed_key(seed)) != int(rng.seed_key(0))


@pytest.mark.parametrize("data", [0, 1, 41, 10**9, 2**62, -3])
def test_folding_a_number_and_a_tensor_agree(data):
    keys = rng.bits(rng.seed_key(1), 4)
    assert torch.equal(rng.fold(keys, data), rng.fold(keys, torch.tensor(data)))
    assert torch.equal(rng.fold(keys, data), rng.fold(keys, torch.full((4,), data)))


def test_folding_large_numbers_wraps_around():
    assert torch.equal(rng.fold(rng.seed_key(0), 2**64 + 3), rng.fold(rng.seed_key(0), 3))


def test_a_client_s_key_does_not_depend_on_who_else_takes_part():
    everyone = rng.round_key(9, 4, torch.arange(20))
    some = rng.round_key(9, 4, torch.tensor([17, 3, 5]))
    assert torch.equal(some.own, everyone.own[[17, 3, 5]])
    assert torch.equal(some.shared, everyone.shared)
    alone = rng.round_key(9, 4, torch.tensor(17))
    assert alone.own.shape == ()
    assert torch.equal(alone.own, everyone.own[17])


@pytest.mark.parametrize("purpose", PURPOSES)
def test_keys_are_folded_for_a_purpose_one_by_one_as_in_a_stack(purpose):
    stack = rng.round_key(0, 2, torch.arange(6)).fold(purpose)
    for client in range(6):
        one = rng.round_key(0, 2, torch.tensor(client)).fold(purpose)
        assert torch.equal(one.own, stack.own[client])
        assert torch.equal(one.shared, stack.shared)


def test_a_stack_draws_what_its_keys_draw_one_by_one():
    keys = rng.bits(rng.seed_key(5), 6).view(2, 3)
    below = torch.tensor([[1, 2, 3], [1000, 2**40, 2**62]])
    for i, j in [(a, b) for a in range(2) for b in range(3)]:
        key = keys[i, j]
        assert torch.equal(rng.bits(keys, 7)[i, j], rng.bits(key, 7))
        assert torch.equal(rng.uniform(keys, 7)[i, j], rng.uniform(key, 7))
        assert torch.equal(rng.normal(keys, 7)[i, j], rng.normal(key, 7))
        assert torch.equal(rng.integers(keys, 7, below)[i, j], rng.integers(key, 7, below[i, j]))


def test_more_draws_begin_with_the_same_ones():
    key = rng.seed_key(8)
    assert torch.equal(rng.bits(key, 1000)[:10], rng.bits(key, 10))
    assert torch.equal(rng.normal(key, 1000)[:10], rng.normal(key, 10))


def test_drawing_changes_nothing_else():
    """Neither the key nor torch's own generator."""
    key = rng.seed_key(2)
    before, state = key.clone(), torch.random.get_rng_state()
    first = rng.normal(key, 5)
    rng.permutation(key, 50)
    assert torch.equal(rng.normal(key, 5), first)
    assert torch.equal(key, before)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_seeds_rounds_clients_and_purposes_have_keys_of_their_own():
    clients = torch.arange(50)
    keys = [
        rng.round_key(seed, round_, clients).fold(purpose)
        for seed in (0, 1, 2)
        for round_ in range(20)
        for purpose in PURPOSES
    ]
    values = [int(k) for key in keys for k in (key.shared, *key.own)]
    assert len(set(values)) == len(values) == 3 * 20 * len(PURPOSES) * 51


def test_order_of_folding_matters():
    key = rng.seed_key(0)
    assert int(rng.fold(rng.fold(key, 1), 2)) != int(rng.fold(rng.fold(key, 2), 1))


def test_uniform_numbers_are_in_range_and_uniform():
    u = rng.uniform(rng.seed_key(11), 100_000)
    assert u.dtype == torch.float64
    assert 0 <= float(u.min()) < 1e-3
    assert 1 - 1e-3 < float(u.max()) < 1
    counts = torch.histc(u, 20, 0, 1)
    assert float(((counts - 5000) ** 2 / 5000).sum()) < 50  # 19 degrees of freedom: 50 is the 99.99th percentile


@pytest.mark.parametrize("below", [1, 2, 7, 10, 64])
def test_integers_are_in_range_and_uniform(below):
    drawn = rng.integers(rng.seed_key(12), 40_000, torch.tensor(below))
    counts = torch.bincount(drawn, minlength=below)
    assert len(counts) == below
    expected = 40_000 / below
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square <= below - 1 + 5 * (2 * below) ** 0.5


def test_integers_of_a_stack_keep_to_each_key_s_own_range():
    keys = rng.fold(rng.seed_key(1), torch.arange(4))
    below = torch.tensor([1, 3, 100, 60_000])
    drawn = rng.integers(keys, 2000, below)
    assert drawn.shape == (4, 2000)
    assert bool((drawn >= 0).all())
    assert bool((drawn < below.unsqueeze(-1)).all())
    assert drawn[1].unique().tolist() == [0, 1, 2]
    assert int(drawn[3].max()) > 59_000


def test_normal_moments():
    x = rng.normal(rng.seed_key(13), 200_000)
    moments = [float(x.pow(n).mean()) for n in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.05)
    assert float(x.abs().max()) > 4
    assert bool(x.isfinite().all())
    a, b = rng.normal(rng.fold(rng.seed_key(13), torch.tensor([0, 1])), 100_000)
    assert abs(float((a * b).mean())) < 0.02


@pytest.mark.parametrize("size", [0, 1, 2, 1000])
def test_permutations(size):
    order = rng.permutation(rng.seed_key(3), size)
    assert torch.equal(order.sort().values, torch.arange(size))
    if size == 1000:
        assert not torch.equal(order, rng.permutation(rng.seed_key(4), size))


def test_many_permutations_at_once_are_those_of_each_key():
    keys = rng.fold(rng.seed_key(8), torch.arange(6))
    sizes = torch.tensor([3, 0, 1, 40, 40, 7])
    starts = sizes.cumsum(0) - sizes
    each = [rng.permutation(key, int(size)) + start for key, size, start in zip(keys, sizes, starts, strict=True)]
    assert torch.equal(rng.permutations(keys, sizes), torch.cat(each))
    assert len(rng.permutations(keys[:0], sizes[:0])) == 0


@pytest.mark.parametrize(("dim", "count"), [(1, 1), (10, 0), (10, 3), (10, 10), (1000, 17)])
def test_subsets_are_distinct_and_ascending(dim, count):
    chosen = rng.subset(rng.seed_key(6), dim, count).tolist()
    assert len(chosen) == count
    assert all(a < b for a, b in pairwise(chosen))
    assert all(0 <= i < dim for i in chosen)


def test_subsets_choose_every_index_equally_often():
    root, draws = rng.seed_key(21), 3000
    keys = rng.fold(root, torch.arange(draws))
    counts = torch.zeros(12)
    for key in keys:
        counts[rng.subset(key, 12, 3)] += 1
    expected = draws * 3 / 12
    assert float((counts - expected).abs().max()) < 5 * (expected * 0.75) ** 0.5


def test_purposes_are_what_they_always_were():
    """A change here changes every run ever recorded; a new purpose takes the next number."""
    assert [purpose.value for purpose in Purpose] == list(range(1, 17))
    assert [purpose.name for purpose in Purpose][:3] == ["BATCHES", "COMPRESSION", "COHORT"]
    assert Purpose.NOISE == 12


def test_keys_are_folded_for_a_purpose_only():
    with pytest.raises(ValueError, match="17 is not a valid Purpose"):
        rng.round_key(0, 0, torch.arange(2)).fold(17)
    with pytest.raises(ValueError, match="0 is not a valid Purpose"):
        rng.data_key(0, 0)


@pytest.mark.parametrize("dim", [0, 1, 2, 10, 1000, 40_000, 2**16 + 1])
def test_a_subset_on_the_host_is_the_same(dim):
    for number, share in enumerate((0.0, 1e-4, 0.01, 0.3, 0.9, 1.0)):
        count = min(dim, int(dim * share) + (0 < share < 1))
        key = rng.seed_key(number) * (-1) ** number
        assert torch.equal(rng.host_subset(int(key), dim, count), rng.subset(key, dim, count))


def test_a_subset_on_the_host_does_not_depend_on_its_guess(monkeypatch):
    key = rng.seed_key(4)
    monkeypatch.setattr(rng, "isqrt", lambda count: -count // 9)  # too low: too few hashes are below it
    assert torch.equal(rng.host_subset(int(key), 50_000, 5_000), rng.subset(key, 50_000, 5_000))
