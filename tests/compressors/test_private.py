"""Private messages: clipped exactly, with noise of the size that was promised, and nothing else changed."""

import pytest
import torch

from fedcef.compressors import COMPRESSORS, Identity, RandK, TopK
from fedcef.compressors.private import Private, simulated
from fedcef.core import rng
from fedcef.core.rng import Key, Purpose, round_key
from fedcef.wire import WireError

from .setting import CASES, DIM, DTYPES, LAYOUT, same_bits, vectors

KEY = round_key(0, 3, torch.tensor(2))
HUGE = 1e40
KINDS = ("one-hot", "huge", "denormal", "heavy-tailed", "gaussian")


def private(inner=Identity(), clip=1.0, noise=0.0, **options):
    return Private(inner=inner, clip=clip, noise=noise, **options)


def sent(compressor, x, key=KEY):
    return compressor.compress(x, key).dense()


# Clipping


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kind", "clip"), [("constant", 7.0), ("constant", 1.0), *((kind, 1.0) for kind in KINDS)])
def test_what_is_long_is_shortened_to_the_clip_and_what_is_short_is_left(kind, clip, dtype):
    x = vectors(dtype)[kind]
    bounded = private(clip=clip).bounded(x, KEY)
    length = float(x.double().norm()) if kind != "huge" else float((x.double() / 1e30).norm()) * 1e30
    if length <= clip:
        assert torch.equal(bounded, x.double())
    else:
        assert float(bounded.norm()) == pytest.approx(clip, rel=1e-14)
        torch.testing.assert_close(bounded / clip, x.double() / length, rtol=1e-12, atol=0)
    assert same_bits(sent(private(clip=clip), x), bounded.to(dtype))


def test_any_two_vectors_are_at_most_twice_the_clip_apart():
    x = torch.stack([*vectors(torch.float64).values()])
    bounded = private(clip=0.3).bounded(torch.cat([x, -x]), round_key(0, 0, torch.arange(2 * len(x))))
    assert float(torch.cdist(bounded, bounded).max()) == pytest.approx(0.6, rel=1e-12)


@pytest.mark.parametrize("name", COMPRESSORS)
def test_without_noise_and_clipping_it_is_the_other_compressor(name):
    """But for Rand-k's view of what it does not draw: a NaN there is noticed as before."""
    for dtype in DTYPES:
        x = vectors(dtype)["gaussian"]
        assert same_bits(sent(private(CASES[name], clip=HUGE), x), sent(CASES[name], x))


@pytest.mark.parametrize("case", ["topk", "randk", "randk unbiased", "qsgd", "powersgd"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_not_sent(case, value):
    for place in range(0, DIM, 7):
        x = vectors(torch.float32)["gaussian"]
        x[place] = value
        with pytest.raises(WireError):
            private(CASES[case], noise=0.5).compress(x, KEY).encode()


# Noise


def test_the_noise_is_normal_with_the_promised_deviation():
    count, dim = 60, 5000
    x = vectors(torch.float64, dim)["gaussian"].expand(count, -1)
    key = round_key(1, 0, torch.arange(count))
    compressor = private(clip=0.7, noise=1.5)
    noise = (sent(compressor, x, key) - compressor.bounded(x, key)) / (1.5 * 0.7)
    # four standard errors of n = 300,000 numbers
    n = noise.numel()
    assert abs(float(noise.mean())) < 4 / n**0.5
    assert float(noise.var()) == pytest.approx(1, abs=4 * (2 / n) ** 0.5)
    assert float(noise.pow(4).mean()) == pytest.approx(3, abs=4 * (96 / n) ** 0.5)
    between = torch.corrcoef(noise)
    assert float((between - torch.eye(count)).abs().max()) < 5 / dim**0.5  # of 1770 pairs of clients


def test_every_round_and_client_has_other_noise():
    x = torch.zeros(DIM)
    keys = [round_key(seed, t, torch.tensor(i)) for seed in (0, 1) for t in (0, 1) for i in (0, 1)]
    drawn = torch.stack([simulated(x, key) for key in keys])
    assert float((torch.corrcoef(drawn) - torch.eye(8)).abs().max()) < 0.5
    assert torch.equal(drawn[0], simulated(x, keys[0]))


def test_the_noise_is_apart_from_what_compressors_draw():
    own = round_key(0, 0, torch.tensor(0)).own
    pair = torch.stack([rng.normal(own, 4000), rng.normal(rng.fold(own, Purpose.NOISE), 4000)])
    assert abs(float(torch.corrcoef(pair)[0, 1])) < 0.06


@pytest.mark.parametrize("name", COMPRESSORS)
def test_a_stack_is_its_rows(name):
    x = torch.stack([vectors(torch.float32)[kind] for kind in ("zero", "gaussian", "heavy-tailed", "one-hot")])
    compressor = private(COMPRESSORS[name](), clip=0.5, noise=0.8).fit(LAYOUT)
    key = round_key(0, 1, torch.arange(4))
    stacked = sent(compressor, x, key)
    for row, alone, own in zip(stacked, x, key.own, strict=True):
        torch.testing.assert_close(row, sent(compressor, alone, Key(key.shared, own)), rtol=2e-6, atol=2e-6)


def test_the_noise_can_come_from_elsewhere():
    seen = []

    def draw(x, key):
        seen.append(x)
        return torch.arange(DIM).double()

    x = vectors(torch.float32)["gaussian"]
    result = sent(private(clip=2.0, noise=0.5, draw=draw), x)
    assert torch.equal(seen[0], private(clip=2.0).bounded(x, KEY))
    assert torch.equal(result, (seen[0] + torch.arange(DIM)).float())


# Rand-k: what is never sent needs no noise


def test_randk_is_clipped_by_what_it_draws():
    x = vectors(torch.float64)["gaussian"]
    inner = RandK(ratio=0.2)
    drawn = rng.subset(KEY.shared, DIM, inner.count(DIM))
    compressor = private(inner, clip=0.1)
    expected = x[drawn] * 0.1 / x[drawn].norm()
    torch.testing.assert_close(sent(compressor, x)[drawn], expected, rtol=1e-12, atol=0)
    larger = x.clone()
    larger[[i for i in range(DIM) if i not in drawn]] = 1e6
    assert same_bits(sent(compressor, larger), sent(compressor, x))


def test_noise_on_top_of_randk_has_the_same_deviation():
    dim, inner = 20000, RandK(ratio=0.3)
    noise = sent(private(inner, clip=0.2, noise=3.0), torch.zeros(dim, dtype=torch.float64))
    drawn = rng.subset(KEY.shared, dim, inner.count(dim))
    assert int(noise.count_nonzero()) == inner.count(dim)
    assert float(noise[drawn].std()) == pytest.approx(0.6, rel=0.04)


# What it claims, and where it can run


def test_nothing_is_claimed_of_the_error():
    compressor = private(TopK(ratio=0.5), noise=0.1)
    assert compressor.contraction(DIM) is None
    assert compressor.variance(DIM) is None


@pytest.mark.parametrize("inner", [Identity(), TopK(), RandK(), *map(CASES.get, ("qsgd", "eden", "powersgd"))])
def test_nothing_is_read_back_from_the_device(inner):
    """On tensors without values `.item()` and shapes that depend on values raise."""
    clients = torch.empty(3, dtype=torch.int64, device="meta")
    payload = private(inner, noise=1.0).compress(torch.empty(3, DIM, device="meta"), round_key(0, 0, clients))
    assert payload.dense().shape == (3, DIM)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("inner", [Identity(), TopK(), RandK()])
def test_a_gpu_sends_what_a_cpu_sends_and_replays_it(inner):
    x = torch.stack([vectors(torch.float32)[kind] for kind in ("zero", "gaussian", "heavy-tailed")])
    key = round_key(0, 1, torch.arange(3))
    there = x.cuda(), Key(key.shared.cuda(), key.own.cuda())
    compressor = private(inner, clip=0.5, noise=0.8)
    torch.testing.assert_close(sent(compressor, *there).cpu(), sent(compressor, x, key), rtol=1e-5, atol=1e-6)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        replayed = sent(compressor, *there)
    there[0].copy_(3 * there[0])
    graph.replay()
    assert torch.equal(replayed, sent(compressor, *there))
