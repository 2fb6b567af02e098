"""What every compressor must do, over the registry and over options."""

import pytest
import torch

from fedcef.compressors import COMPRESSORS, Identity, PowerSGD
from fedcef.core import rng
from fedcef.core.parts import completed, make, validate
from fedcef.core.rng import Key, round_key
from fedcef.wire import FrameKind, WireError, decode, encode

from .setting import CASES, DIM, DTYPES, LAYOUT, draws, inputs, is_random, narrow, round_keys, same_bits, vectors

every_case = pytest.mark.parametrize("case", CASES)
every_compressor = pytest.mark.parametrize("name", COMPRESSORS)

MATMUL = [case for case, compressor in CASES.items() if isinstance(compressor, PowerSGD)]
"""Sums in a product of matrices depend on how many are multiplied at once, so a stack is equal up to rounding."""
MODERATE = [case for case in CASES if case.split()[0] in ("drive", "eden", "powersgd")]
"""What is multiplied or added up in decoding is refused from 2^40 on."""
HALF = ["topk float16", "topk bfloat16", "threshold high"]
POWERS = ["natural", "natural unbiased", "topk powers"]


def test_inputs_are_what_they_claim():
    for dtype in DTYPES:
        x = vectors(dtype)
        assert 0 < float(x["denormal"].abs().max()) < torch.finfo(dtype).tiny
        assert bool(x["huge"].isfinite().all())


@every_case
def test_the_bounds_hold(case):
    """E|C(x) - x|² <= q²|x|² and, if unbiased, <= ω|x|²; the mean over draws may exceed it by its own error."""
    compressor = CASES[case]
    bounds = [b for b in (compressor.contraction(DIM), compressor.variance(DIM)) if b is not None]
    assert bounds
    count = 150 if is_random(compressor) else 1
    for dtype in DTYPES:
        given = inputs(compressor, dtype)
        if case in (*HALF, *POWERS):
            del given["denormal"]  # there is no bound: see the next test
        if case == "topk float16":
            del given["huge"]
        x = torch.stack(list(given.values()))
        exact = x.double()
        size = exact.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)  # squares stay in range
        errors = ((draws(compressor, x, count).double() - exact) / size).square().sum(-1)  # (count, kinds)
        assert bool(errors.isfinite().all())
        assert not errors[:, 0].any()  # zero goes to zero
        errors[:, 1:] /= (exact / size).square().sum(-1)[1:]
        noise = 5 * errors.std(0, correction=0) / count**0.5
        for kind, mean, allowed in zip(given, errors.mean(0).tolist(), noise.tolist(), strict=True):
            slack = allowed + (1e-3 if kind == "denormal" else 1e-12)
            assert all(mean <= bound * (1 + 1e-6) + slack for bound in bounds), kind


@pytest.mark.parametrize("case", [*HALF, *POWERS])
def test_beyond_the_range_of_the_type_that_is_sent(case):
    """Powers of two and float16 have no such small numbers, bfloat16 has few; what is too large is not sent."""
    compressor, key = CASES[case], round_keys(1)[0]
    small = vectors(torch.float32)["denormal"]
    decoded = compressor.compress(small, key).dense()
    if "threshold" in case or "bfloat16" in case:
        assert float((decoded - small).abs().max()) <= 2.0**-134  # half of bfloat16's smallest number
    else:
        assert not decoded.any()
    if case == "topk float16":
        with pytest.raises(WireError, match="not finite"):
            compressor.compress(vectors(torch.float32)["huge"], key).encode()


@every_case
def test_a_contraction_is_below_one_and_a_variance_needs_no_bias(case):
    for dim in (1, 2, DIM, 4_460_000):
        compressor = COMPRESSORS["powersgd"]() if case in MATMUL else CASES[case]
        q2, omega = compressor.contraction(dim), compressor.variance(dim)
        assert q2 is None or 0 <= q2 < 1
        assert omega is None or omega >= 0
    assert q2 is not None or "unbiased" in case


UNBIASED = [case for case, compressor in CASES.items() if compressor.variance(DIM) is not None]


def test_what_is_called_unbiased():
    assert [case for case in CASES if "unbiased" in case] == [case for case in UNBIASED if case != "identity"]


@pytest.mark.parametrize("case", UNBIASED)
def test_the_mean_over_draws_is_the_vector(case):
    count = 1000
    x = torch.stack([vectors(torch.float64)[kind] for kind in ("constant", "heavy-tailed", "few values", "one large")])
    size = x.abs().amax(-1, keepdim=True)
    found = draws(CASES[case], x, count).double() / size
    steps = (found.amax(0) - found.amin(0)).amax(-1, keepdim=True)
    noise = 5.5 * found.std(0) / count**0.5 + 10 * steps / count  # what is drawn once in 1000 times is hardly seen
    assert bool(((found.mean(0) - x / size).abs() <= noise + 1e-6).all())


@every_case
def test_a_stack_goes_over_the_wire_row_by_row(case):
    """Each row as if it were alone, in as many bytes as are counted, with the value that the sender goes on with."""
    compressor = CASES[case]
    for dtype in DTYPES:
        kinds = ("zero", "one-hot", "huge", "denormal", "heavy-tailed", "few values")
        x = torch.stack([vectors(dtype)[kind] for kind in kinds])
        if case in MODERATE or "float16" in case:
            x = x.where(x.abs() < 1e10, 1.5)
        before, key = x.clone(), round_key(0, 3, torch.arange(len(x)))
        payload = compressor.compress(x, key)
        assert same_bits(x, before)
        decoded = payload.dense()
        assert decoded.shape == x.shape
        assert decoded.dtype == (torch.float32 if narrow(compressor) else dtype)
        assert payload.nbytes().shape == payload.paper_nbytes().shape == (len(x),)
        for i, (row, size) in enumerate(zip(payload.rows(), payload.nbytes().tolist(), strict=True)):
            data = row.encode()
            assert len(data) == size
            alone = compressor.compress(x[i], Key(key.shared, key.own[i]))
            if case in MATMUL:
                torch.testing.assert_close(alone.dense(), row.dense())
            else:
                assert alone.encode() == data
            received = decode(encode({"x": row}, FrameKind.UP, 1)).message["x"]
            for other in (row, received):
                assert same_bits(other.dense(), decoded[i])
            total = torch.zeros(DIM, dtype=dtype)
            received.add_to(total)
            assert torch.equal(total, decoded[i].to(dtype))
        assert not decoded[0].any()  # zero goes to zero


RANDOM = ["randk", "terngrad", "qsgd", "drive", "eden", "natural unbiased", "powersgd 1"]


@pytest.mark.parametrize("case", RANDOM)
def test_another_round_draws_something_else(case):
    x = vectors(torch.float32)["gaussian"]
    found = [CASES[case].compress(x, key).dense().tolist() for key in round_keys(4)]
    assert len({tuple(row) for row in found}) == 4


@pytest.mark.parametrize("case", ["terngrad", "qsgd", "drive", "eden", "natural unbiased"])
def test_clients_draw_independently(case):
    x = vectors(torch.float32)["gaussian"].repeat(2, 1)
    first, second = CASES[case].compress(x, round_key(0, 0, torch.arange(2))).dense()
    assert not torch.equal(first, second)


@every_case
def test_what_is_not_finite_is_not_sent(case):
    """It shows in what is decoded, and cannot be encoded; the other clients' messages are what they were."""
    clean, key = vectors(torch.float32)["gaussian"].repeat(2, 1), round_key(0, 0, torch.arange(2))
    expected = CASES[case].compress(clean, key).dense()[1]
    bad = [(where, value) for where in (0, 40, DIM - 1) for value in (torch.nan, -torch.inf)]
    for where, value in [*bad, (17, torch.inf), (slice(None), torch.nan)]:
        x = clean.clone()
        x[0, where] = value
        payload = CASES[case].compress(x, key)
        assert not bool(payload.dense()[0].isfinite().all())
        torch.testing.assert_close(payload.dense()[1], expected)
        with pytest.raises(WireError):
            payload.rows()[0].encode()


@every_compressor
def test_one_entry_can_be_compressed(name):
    """A single entry; a share of it would be nothing, so it is kept."""
    compressor = COMPRESSORS[name]()
    decoded = compressor.compress(torch.tensor([-2.5]), round_keys(1)[0]).dense()
    assert decoded.tolist() == ([-2.0] if name == "natural" else [-2.5])


@every_compressor
def test_any_length_can_be_compressed(name):
    compressor = COMPRESSORS[name]()
    for dim in (1, 2, 3, 255, 256, 257, 4097):
        x = rng.normal(rng.fold(rng.seed_key(1), torch.arange(2)), dim).float()
        payload = compressor.compress(x, round_key(0, 0, torch.arange(2)))
        errors = (payload.dense() - x).double().square().sum(-1)
        assert payload.dense().shape == x.shape
        assert bool((errors <= x.double().square().sum(-1)).all())
        assert [len(row.encode()) for row in payload.rows()] == payload.nbytes().tolist()


@every_case
def test_shapes_do_not_depend_on_values(case):
    """Tensors without data: whatever would wait for the device to read a value raises."""
    shared, own = (torch.empty(shape, dtype=torch.int64, device="meta") for shape in ((), (3,)))
    payload = CASES[case].compress(torch.empty(3, DIM, device="meta"), Key(shared, own))
    assert payload.dense().shape == (3, DIM)
    assert payload.nbytes().shape == (3,)
    assert payload.paper_nbytes().shape == (3,)


def test_identity():
    for dtype in DTYPES:
        for x in vectors(dtype).values():
            assert same_bits(Identity().compress(x, round_keys(1)[0]).dense(), x)


@pytest.mark.parametrize("name", [n for n in COMPRESSORS if n not in ("layerwise_topk", "dct_topk", "powersgd")])
def test_others_do_not_care_about_the_layout(name):
    compressor = COMPRESSORS[name]()
    x = torch.randn(DIM, generator=torch.Generator().manual_seed(0))
    key = round_keys(1)[0]
    assert compressor.fit(LAYOUT).compress(x, key).encode() == compressor.compress(x, key).encode()


@every_compressor
def test_defaults_are_valid_options(name):
    options = completed(COMPRESSORS, {"name": name})
    validate(make("compressor", COMPRESSORS, options))
    assert COMPRESSORS[name].__doc__.splitlines()[0].endswith((".", ":"))
