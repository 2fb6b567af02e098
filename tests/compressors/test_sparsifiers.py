"""What each sparsifier keeps."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcef.compressors import (
    COMPRESSORS,
    STC,
    BlockTopK,
    BlockwiseTopK,
    LayerwiseTopK,
    RandK,
    Threshold,
    TopK,
    largest,
)
from fedcef.core import rng
from fedcef.core.rng import round_key
from fedcef.wire import FrameKind, Levels, Nonzeros, Seeded, Sparse, WireError, decode, encode

from .setting import DIM, DTYPES, LAYOUT, round_keys, same_bits, vectors

SPARSIFIERS = [
    name for name, kind in COMPRESSORS.items() if "ratio" in [f.name for f in fields(kind)] and name != "stc"
]
every_sparsifier = pytest.mark.parametrize("name", SPARSIFIERS)


@every_sparsifier
def test_a_sparsifier_never_adds_error_beyond_the_vector(name):
    for dtype in DTYPES:
        x = torch.stack(list(vectors(dtype).values()))
        decoded = COMPRESSORS[name]().fit(LAYOUT).compress(x, round_key(0, 0, torch.arange(len(x)))).dense()
        assert bool(((decoded == x) | (decoded == 0)).all())


@every_sparsifier
def test_ratio_one_keeps_everything(name):
    x = vectors(torch.float32)["gaussian"]
    compressor = COMPRESSORS[name](ratio=1.0).fit(LAYOUT)
    assert torch.equal(compressor.compress(x, round_keys(1)[0]).dense(), x)
    assert compressor.contraction(DIM) == 0


@pytest.mark.parametrize("values", ["float32", "float16", "bfloat16"])
@every_sparsifier
def test_values_are_rounded_before_they_are_decoded(name, values):
    """Both ends must see the rounded value, or error feedback would not know what was lost."""
    key = round_keys(1)[0]
    for dtype in DTYPES:
        x = vectors(dtype)["gaussian"]
        exact = COMPRESSORS[name]().fit(LAYOUT).compress(x, key).dense()
        payload = COMPRESSORS[name](values=values).fit(LAYOUT).compress(x, key)
        rounded = exact.to(getattr(torch, values)).to(torch.float32)
        assert same_bits(payload.dense(), rounded)
        assert same_bits(decode(encode({"x": payload}, FrameKind.UP, 0)).message["x"].dense(), rounded)
        if values != "float32":
            assert not torch.equal(rounded.to(dtype), exact)
            full = COMPRESSORS[name](values="float32").fit(LAYOUT).compress(x, key)
            assert int(full.nbytes()) - int(payload.nbytes()) == 2 * int((exact != 0).sum())


def test_a_value_too_large_for_its_type_is_refused():
    payload = TopK(values="float16").compress(torch.full((20,), 1e6), round_keys(1)[0])
    with pytest.raises(WireError, match="not finite"):
        payload.encode()


# Top-k


def largest_by_sorting(x: np.ndarray, count: int) -> list[int]:
    by_size = sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))
    return sorted(by_size[:count])


@pytest.mark.parametrize(("ratio", "dim", "count"), [(0.1, 5, 1), (0.1, 30, 3), (0.01, 421_642, 4216), (0.5, 7, 3)])
@every_sparsifier
def test_how_many_are_kept(name, ratio, dim, count):
    assert COMPRESSORS[name](ratio=ratio).count(dim) == count == max(1, int(ratio * dim))


@pytest.mark.parametrize("ratio", [0.001, 0.33, 1.0])
def test_topk_keeps_the_largest(ratio):
    for dtype in DTYPES:
        for x in vectors(dtype).values():
            payload = TopK(ratio=ratio).compress(x, round_keys(1)[0])
            assert isinstance(payload, Sparse)
            expected = largest_by_sorting(x.numpy(), max(1, int(ratio * DIM)))
            assert payload.indices.tolist() == expected
            assert same_bits(payload.values, x[expected])


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    rows=st.integers(1, 40).flatmap(
        lambda dim: st.lists(st.lists(st.integers(-2, 2), min_size=dim, max_size=dim), min_size=1, max_size=3)
    ),
    share=st.floats(0, 1),
)
def test_ties_go_to_the_lowest_index(rows, share):
    x = torch.tensor(rows, dtype=torch.float32)
    count = max(1, int(share * x.shape[-1]))
    assert largest(x, count).tolist() == [largest_by_sorting(row, count) for row in x.numpy()]


@pytest.mark.parametrize("lead", [(), (1,), (4,), (2, 3), (0,)])
def test_largest_over_leading_axes(lead):
    x = rng.normal(rng.seed_key(3), torch.Size(lead).numel() * 11).view(*lead, 11).round()
    found = largest(x, 4)
    assert found.dtype == torch.int64
    assert found.shape == (*lead, 4)
    expected = [largest_by_sorting(row, 4) for row in x.reshape(-1, 11).numpy()]
    assert found.reshape(-1, 4).tolist() == expected


def test_negative_zero_is_a_zero():
    assert largest(torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0]), 3).tolist() == [0, 1, 4]


def test_infinities_and_nans_are_large():
    """They are kept, so that a run that has overflowed is seen to have; other rows keep what is theirs."""
    x = torch.tensor([[1.0, torch.nan, 3.0, 2.0], [torch.inf, 5.0, -torch.inf, 4.0]])
    assert largest(x, 2).tolist() == [[1, 2], [0, 2]]
    nan = torch.nan
    crowded = torch.tensor([[1.0, 2.0, nan, nan, nan], [5.0, 4.0, 3.0, 2.0, 1.0], [nan] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]])
    assert largest(crowded, 2).tolist() == [[2, 3], [0, 1], [0, 1], [3, 4]]


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_largest_on_the_meta_device(lead):
    assert largest(torch.empty(*lead, 50, device="meta"), 5).shape == (*lead, 5)


def test_topk_beats_its_bound_except_on_constant_vectors():
    for kind, x in vectors(torch.float64).items():
        x = x / x.abs().max().clamp(min=1e-300)
        error = (TopK().compress(x, round_keys(1)[0]).dense() - x).square().sum()
        bound = TopK().contraction(DIM) * x.square().sum()
        if kind == "constant":
            assert float(error) == pytest.approx(float(bound), rel=1e-12)
        elif kind != "zero":
            assert float(error) < float(bound)


# Rand-k


def support(payload) -> list[int]:
    return payload.rows()[0].dense().nonzero().squeeze(-1).tolist()


def test_randk_draws_one_support_for_all_clients_of_a_round():
    x = torch.ones(5, DIM)
    payload = RandK().compress(x, round_key(0, 0, torch.arange(5)))
    assert isinstance(payload, Seeded)
    decoded = payload.dense()
    assert bool((decoded == decoded[0]).all())
    assert decoded.sum(-1).tolist() == [6] * 5
    others = RandK().compress(x[:2], round_key(0, 0, torch.tensor([3, 8])))
    assert support(others) == support(payload)


def test_randk_draws_another_support_in_another_round_or_run():
    x = torch.ones(1, DIM)
    keys = [round_key(seed, t, torch.arange(1)) for seed in (0, 1) for t in range(10)]
    supports = [tuple(support(RandK().compress(x, key))) for key in keys]
    assert len(set(supports)) == 20


def test_randk_sends_no_indices():
    payload = RandK(ratio=0.5).compress(torch.randn(DIM), round_keys(1)[0])
    assert int(payload.nbytes()) == len(payload.encode()) == 6 + 4 + 4 * 30 + 8  # head, count, values, key
    assert int(payload.paper_nbytes()) == 4 * 30


def test_randk_keeps_every_entry_equally_often():
    x, draws = torch.ones(20), 800
    kept = torch.stack([RandK(ratio=0.25).compress(x, key).dense() for key in round_keys(draws)]).mean(0)
    assert float((kept - 0.25).abs().max()) < 5 * (0.25 * 0.75 / draws) ** 0.5


def test_randk_s_mean_error_is_its_bound():
    x = vectors(torch.float64)["heavy-tailed"]
    compressor = RandK(ratio=0.3)
    errors = torch.stack([(compressor.compress(x, k).dense() - x).square().sum() for k in round_keys(600)])
    errors /= x.square().sum()
    assert float(errors.max()) <= 1
    assert float(errors.mean()) == pytest.approx(compressor.contraction(DIM), abs=float(4 * errors.std() / 600**0.5))


# Layer by layer


def test_layerwise_keeps_the_largest_of_every_layer():
    x = torch.stack([vectors(torch.float32)["heavy-tailed"], vectors(torch.float32)["few values"]])
    compressor = LayerwiseTopK(ratio=0.3).fit(LAYOUT)
    assert compressor.sizes == (36, 1, 3, 20)
    payload = compressor.compress(x, round_key(0, 0, torch.arange(2)))
    for row, indices in zip(x, payload.indices, strict=True):
        expected = []
        for _, stretch, _ in LAYOUT.segments():
            layer = row[stretch].numpy()
            expected += [stretch.start + i for i in largest_by_sorting(layer, max(1, int(0.3 * len(layer))))]
        assert indices.tolist() == expected
        assert len(expected) == 10 + 1 + 1 + 6


def test_layerwise_is_bounded_by_its_worst_layer():
    compressor = LayerwiseTopK(ratio=0.3).fit(LAYOUT)
    assert compressor.contraction(DIM) == pytest.approx(1 - 10 / 36)
    x = torch.zeros(DIM, dtype=torch.float64)
    x[:36] = 1
    error = (compressor.compress(x, round_keys(1)[0]).dense() - x).square().sum()
    assert float(error) == 26 == pytest.approx(compressor.contraction(DIM) * 36)


def test_layerwise_without_a_layout_is_topk():
    x = vectors(torch.float32)["few values"]
    key = round_keys(1)[0]
    assert LayerwiseTopK().compress(x, key).encode() == TopK().compress(x, key).encode()
    assert LayerwiseTopK().contraction(DIM) == TopK().contraction(DIM)


# In blocks


def test_blockwise_keeps_the_largest_of_every_block():
    x = torch.stack([vectors(torch.float32)[kind] for kind in ("heavy-tailed", "few values")])
    payload = BlockwiseTopK(ratio=0.3, length=16).compress(x, round_key(0, 0, torch.arange(2)))
    for row, indices in zip(x.numpy(), payload.indices.tolist(), strict=True):
        starts = range(0, DIM, 16)
        expected = [
            s + i for s in starts for i in largest_by_sorting(row[s : s + 16], max(1, int(0.3 * len(row[s : s + 16]))))
        ]
        assert indices == expected


def test_blockwise_is_bounded_by_its_worst_block():
    compressor = BlockwiseTopK(ratio=0.3, length=16)
    assert compressor.contraction(64) == pytest.approx(1 - 4 / 16)
    assert compressor.contraction(65) == pytest.approx(1 - 4 / 16)
    assert compressor.contraction(70) == pytest.approx(1 - 1 / 6)  # the last block has 6 entries and keeps 1
    assert BlockwiseTopK(ratio=0.3, length=16).contraction(10) == TopK(ratio=0.3).contraction(10)


def test_blockwise_with_one_block_is_topk():
    x, key = vectors(torch.float32)["few values"], round_keys(1)[0]
    assert BlockwiseTopK().compress(x, key).encode() == TopK().compress(x, key).encode()


def test_block_topk_keeps_the_blocks_of_largest_norm_and_what_is_left_over():
    x = torch.zeros(22)
    x[0:4], x[4:8], x[12:16], x[20:] = 1.0, torch.tensor([0.0, 0.0, 2.5, 0.0]), 1.1, 0.01
    payload = BlockTopK(ratio=0.4, length=4).compress(x, round_keys(1)[0])
    assert payload.indices.tolist() == [4, 5, 6, 7, 12, 13, 14, 15, 20, 21]
    assert BlockTopK(ratio=0.4, length=4).contraction(22) == pytest.approx(1 - 2 / 5)
    assert BlockTopK(ratio=0.4, length=64).contraction(22) == 0


@pytest.mark.parametrize("size", [1e30, 1e-42])
def test_block_norms_neither_overflow_nor_vanish(size):
    x = size * torch.tensor([1.0, 1.0, 3.0, 0.0, 2.0, 2.0])
    payload = BlockTopK(ratio=0.4, length=2).compress(x, round_keys(1)[0])
    assert payload.indices.tolist() == [2, 3]


# Above a threshold


def test_threshold_keeps_what_is_above_a_multiple_of_the_root_mean_square():
    x = rng.normal(rng.seed_key(4), 10_000).repeat(2, 1)
    x[1] *= 1e30
    payload = Threshold(factor=2.0).compress(x, round_key(0, 0, torch.arange(2)))
    assert isinstance(payload, Nonzeros)
    root_mean_square = (x / x.abs().amax(-1, keepdim=True)).square().mean(-1, keepdim=True).sqrt()
    expected = torch.where(x.abs() / x.abs().amax(-1, keepdim=True) >= 2 * root_mean_square, x, 0)
    assert torch.equal(payload.dense(), expected)
    assert 0.03 < float((expected != 0).double().mean()) < 0.06  # of normal numbers, 4.6% are


def test_threshold_always_keeps_the_largest():
    x = torch.tensor([1.0, -1.0, 1.0, 0.5])
    assert Threshold(factor=100.0).compress(x, round_keys(1)[0]).dense().tolist() == [1, -1, 1, 0]
    assert Threshold(factor=100.0).contraction(4) == 0.75
    assert Threshold(factor=0.5).contraction(4) == 0.25


# Sparse ternary compression


def test_stc_sends_signs_and_one_mean():
    x = torch.tensor([0.1, -3.0, 0.2, 1.0, -2.0, 0.0])
    payload = STC(ratio=0.5).compress(x, round_keys(1)[0])
    assert isinstance(payload.values, Levels)
    assert payload.dense().tolist() == [0, -2, 0, 2, -2, 0]
    assert STC(ratio=0.5).contraction(6) == pytest.approx(1 - 1 / 6)
