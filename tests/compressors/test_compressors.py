"""What every compressor must do, over the registry, and what each one does."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from fedcef import rng
from fedcef.compressors import COMPRESSORS, Compressor, Identity, LayerwiseTopK, RandK, TopK, largest
from fedcef.layout import Layout
from fedcef.rng import Key, round_key
from fedcef.wire import FrameKind, Seeded, Sparse, WireError, decode, encode

DIM = 60
LAYOUT = Layout(("a", "b", "c", "d"), ((4, 9), (1,), (3,), (20,)))
DTYPES = [torch.float32, torch.float64]
DRAWS = 400

every_compressor = pytest.mark.parametrize("name", COMPRESSORS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def fitted(name: str) -> Compressor:
    return COMPRESSORS[name]().fit(LAYOUT)


def vectors(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    gaussian = rng.normal(rng.seed_key(1), DIM).to(dtype)
    return {
        "zero": torch.zeros(DIM, dtype=dtype),
        "constant": torch.full((DIM,), -0.3, dtype=dtype),
        "one-hot": torch.eye(DIM, dtype=dtype)[37],
        "huge": gaussian * 1e30,
        "denormal": gaussian * torch.finfo(dtype).tiny * 1e-3,
        "heavy-tailed": torch.tan(3.1 * (rng.uniform(rng.seed_key(2), DIM) - 0.5)).to(dtype),
        "gaussian": gaussian,
        "few values": (torch.arange(DIM) % 3 - 1).to(dtype),
    }


def round_keys(count: int) -> list[Key]:
    return [round_key(0, t, torch.tensor(0)) for t in range(count)]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b) and torch.equal(a.signbit(), b.signbit())


def test_inputs_are_what_they_claim():
    for dtype in DTYPES:
        x = vectors(dtype)
        assert 0 < float(x["denormal"].abs().max()) < torch.finfo(dtype).tiny
        assert bool(x["huge"].isfinite().all())


@every_dtype
@pytest.mark.parametrize("kind", vectors(torch.float32))
@every_compressor
def test_contraction(name, kind, dtype):
    """E|C(x) - x|² <= q²|x|²; the mean over draws may exceed it by its own error."""
    compressor, x = fitted(name), vectors(dtype)[kind]
    bound = compressor.contraction(DIM)
    if bound is None:
        pytest.skip(f"{name} is not a contraction")
    assert 0 <= bound < 1
    exact = x.double()
    scale = exact.abs().max().clamp(min=torch.finfo(torch.float64).tiny)  # squares must not over- or underflow
    energy = (exact / scale).square().sum()
    errors = torch.stack(
        [((compressor.compress(x, key).dense().double() - exact) / scale).square().sum() for key in round_keys(DRAWS)]
    )
    assert bool(errors.isfinite().all())
    noise = 5 * errors.std() / DRAWS**0.5
    assert float(errors.mean()) <= float(bound * energy * (1 + 1e-6) + noise)
    if kind == "zero":
        assert float(errors.max()) == 0


@every_dtype
@every_compressor
def test_a_stack_is_compressed_row_by_row(name, dtype):
    compressor = fitted(name)
    x = torch.stack(list(vectors(dtype).values()))
    key = round_key(0, 3, torch.arange(len(x)))
    payload = compressor.compress(x, key)
    assert payload.dense().shape == x.shape
    assert payload.nbytes().shape == (len(x),)
    for i, row in enumerate(payload.rows()):
        alone = compressor.compress(x[i], Key(key.shared, key.own[i]))
        assert same_bits(alone.dense(), row.dense())
        assert same_bits(payload.dense()[i], row.dense())
        assert alone.encode() == row.encode()


@every_dtype
@every_compressor
def test_the_wire_carries_the_decoded_value(name, dtype):
    x = torch.stack(list(vectors(dtype).values()))
    payload = fitted(name).compress(x, round_key(0, 1, torch.arange(len(x))))
    for row, size in zip(payload.rows(), payload.nbytes().tolist(), strict=True):
        assert len(row.encode()) == size
        received = decode(encode({"x": row}, FrameKind.UP, 1)).message["x"]
        assert same_bits(received.dense(), row.dense())
        total = torch.zeros(DIM, dtype=dtype)
        row.add_to(total)
        assert torch.equal(total, row.dense())


@every_dtype
@every_compressor
def test_the_input_is_left_alone_and_the_result_has_its_type(name, dtype):
    x = vectors(dtype)["gaussian"].repeat(3, 1)
    before = x.clone()
    decoded = fitted(name).compress(x, round_key(0, 0, torch.arange(3))).dense()
    assert torch.equal(x, before)
    assert decoded.dtype == dtype


@every_compressor
def test_the_same_key_gives_the_same_bytes(name):
    x = vectors(torch.float32)["gaussian"]
    key = round_key(4, 2, torch.tensor(1))
    assert fitted(name).compress(x, key).encode() == fitted(name).compress(x, key).encode()


@every_compressor
def test_one_entry_can_be_compressed(name):
    """A single entry; a share of it would be nothing, so it is kept."""
    decoded = COMPRESSORS[name]().compress(torch.tensor([-2.5]), round_key(0, 0, torch.tensor(0))).dense()
    assert torch.allclose(decoded, torch.tensor([-2.5]))


@every_compressor
def test_shapes_do_not_depend_on_values(name):
    """Fake tensors have no values: whatever would wait for the device to read one raises."""
    compressor = fitted(name)
    with FakeTensorMode():
        key = Key(torch.zeros((), dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
        payload = compressor.compress(torch.randn(3, DIM), key)
        assert payload.dense().shape == (3, DIM)
        assert payload.nbytes().shape == (3,)
        assert payload.paper_nbytes().shape == (3,)


SPARSIFIERS = [name for name, kind in COMPRESSORS.items() if "ratio" in [f.name for f in fields(kind)]]
every_sparsifier = pytest.mark.parametrize("name", SPARSIFIERS)


@every_dtype
@every_sparsifier
def test_a_sparsifier_never_adds_error_beyond_the_vector(name, dtype):
    for x in vectors(dtype).values():
        for key in round_keys(20):
            decoded = fitted(name).compress(x, key).dense()
            assert bool(((decoded == x) | (decoded == 0)).all())


@every_sparsifier
def test_ratio_one_keeps_everything(name):
    x = vectors(torch.float32)["gaussian"]
    compressor = COMPRESSORS[name](ratio=1.0).fit(LAYOUT)
    assert torch.equal(compressor.compress(x, round_keys(1)[0]).dense(), x)
    assert compressor.contraction(DIM) == 0


@pytest.mark.parametrize("values", ["float32", "float16", "bfloat16"])
@every_dtype
@every_sparsifier
def test_values_are_rounded_before_they_are_decoded(name, dtype, values):
    """Both ends must see the rounded value, or error feedback would not know what was lost."""
    x = vectors(dtype)["gaussian"]
    key = round_keys(1)[0]
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


@every_dtype
def test_identity(dtype):
    for x in vectors(dtype).values():
        assert same_bits(Identity().compress(x, round_keys(1)[0]).dense(), x)


# Top-k


def largest_by_sorting(x: np.ndarray, count: int) -> list[int]:
    by_size = sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))
    return sorted(by_size[:count])


@pytest.mark.parametrize(("ratio", "dim", "count"), [(0.1, 5, 1), (0.1, 30, 3), (0.01, 421_642, 4216), (0.5, 7, 3)])
@every_sparsifier
def test_how_many_are_kept(name, ratio, dim, count):
    assert COMPRESSORS[name](ratio=ratio).count(dim) == count == max(1, int(ratio * dim))


@every_dtype
@pytest.mark.parametrize("ratio", [0.001, 0.1, 0.33, 0.9, 1.0])
@pytest.mark.parametrize("kind", vectors(torch.float32))
def test_topk_keeps_the_largest(kind, ratio, dtype):
    x = vectors(dtype)[kind]
    payload = TopK(ratio=ratio).compress(x, round_keys(1)[0])
    assert isinstance(payload, Sparse)
    expected = largest_by_sorting(x.numpy(), max(1, int(ratio * DIM)))
    assert payload.indices.tolist() == expected
    assert same_bits(payload.values, x[expected])


@settings(derandomize=True, deadline=None, max_examples=300)
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
    """They are kept, so that a run that has overflowed is seen to have."""
    x = torch.tensor([[1.0, torch.nan, 3.0, 2.0], [torch.inf, 5.0, -torch.inf, 4.0]])
    assert largest(x, 2).tolist() == [[1, 2], [0, 2]]
    crowded = largest(torch.full((3, 5), torch.nan), 2)
    assert bool(((crowded >= 0) & (crowded < 5)).all())


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
    x, draws = torch.ones(20), 2000
    kept = torch.stack([RandK(ratio=0.25).compress(x, key).dense() for key in round_keys(draws)]).mean(0)
    assert float((kept - 0.25).abs().max()) < 5 * (0.25 * 0.75 / draws) ** 0.5


def test_randk_s_mean_error_is_its_bound():
    x = vectors(torch.float64)["heavy-tailed"]
    compressor = RandK(ratio=0.3)
    errors = torch.stack([(compressor.compress(x, k).dense() - x).square().sum() for k in round_keys(2000)])
    errors /= x.square().sum()
    assert float(errors.max()) <= 1
    assert float(errors.mean()) == pytest.approx(compressor.contraction(DIM), abs=float(4 * errors.std() / 2000**0.5))


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


@pytest.mark.parametrize("name", [n for n in COMPRESSORS if n != "layerwise_topk"])
def test_others_do_not_care_about_the_layout(name):
    compressor = COMPRESSORS[name]()
    x = torch.randn(DIM, generator=torch.Generator().manual_seed(0))
    key = round_keys(1)[0]
    assert compressor.fit(LAYOUT).compress(x, key).encode() == compressor.compress(x, key).encode()
