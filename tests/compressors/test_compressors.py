"""What every compressor must do, over the registry and over options."""

import pytest
import torch

from fedcef.compressors import COMPRESSORS, Identity, Natural, PowerSGD
from fedcef.core.parts import completed, make, validate
from fedcef.core.rng import Key, round_key
from fedcef.wire import FrameKind, WireError, decode, encode

from .setting import CASES, DIM, DTYPES, KINDS, LAYOUT, draws, inputs, narrow, round_keys, same_bits, vectors

DRAWS = 300

every_case = pytest.mark.parametrize("case", CASES)
every_compressor = pytest.mark.parametrize("name", COMPRESSORS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
every_kind = pytest.mark.parametrize("kind", KINDS)

MATMUL = [case for case, compressor in CASES.items() if isinstance(compressor, PowerSGD)]
"""Sums in a product of matrices depend on how many are multiplied at once, so a stack is equal up to rounding."""
MODERATE = [case for case in CASES if case.split()[0] in ("drive", "eden", "powersgd")]
"""What is multiplied or added up in decoding is refused from 2^40 on."""


def test_inputs_are_what_they_claim():
    for dtype in DTYPES:
        x = vectors(dtype)
        assert 0 < float(x["denormal"].abs().max()) < torch.finfo(dtype).tiny
        assert bool(x["huge"].isfinite().all())


def relative_errors(compressor, x, count):
    """|C(x) - x|²/|x|² for as many draws; of x itself where x is 0."""
    exact = x.double()
    size = exact.abs().max().clamp(min=torch.finfo(torch.float64).tiny)  # squares must not over- or underflow
    energy = (exact / size).square().sum()
    errors = ((draws(compressor, x, count).double() - exact) / size).square().sum(-1)
    return errors / energy if energy else errors


@every_dtype
@every_kind
@every_case
def test_the_bounds_hold(case, kind, dtype):
    """E|C(x) - x|² <= q²|x|² and, if unbiased, <= ω|x|²; the mean over draws may exceed it by its own error."""
    compressor = CASES[case]
    x = inputs(compressor, dtype)[kind]
    if kind == "denormal" and (isinstance(compressor, Natural) or case == "topk powers"):
        assert not compressor.compress(x, round_keys(1)[0]).dense().any()  # there are no such powers of two
        return
    if kind == "denormal" and case == "topk float16":
        pytest.skip("float16 has no such numbers")
    if kind in ("huge", "denormal") and case in ("topk float16", "topk bfloat16", "threshold high"):
        return  # beyond the normal range of the type
    bounds = [b for b in (compressor.contraction(DIM), compressor.variance(DIM)) if b is not None]
    errors = relative_errors(compressor, x, DRAWS)
    assert bool(errors.isfinite().all())
    noise = 5 * errors.std() / DRAWS**0.5
    for bound in bounds:
        assert float(errors.mean()) <= float(bound * (1 + 1e-6) + noise) + (1e-3 if kind == "denormal" else 1e-12)
    if kind == "zero":
        assert float(errors.max()) == 0


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


@every_kind
@pytest.mark.parametrize("case", UNBIASED)
def test_the_mean_over_draws_is_the_vector(case, kind):
    compressor = CASES[case]
    x = vectors(torch.float64)[kind]
    if kind == "denormal":
        return  # see test_the_bounds_hold
    found, size = draws(compressor, x, 2000).double(), x.abs().max().clamp(min=1e-300)
    found = found / size
    steps = (found.amax(0) - found.amin(0)).max()
    noise = 5.5 * found.std(0) / 2000**0.5 + 10 * steps / 2000  # what is drawn once in 2000 times is hardly seen
    assert bool(((found.mean(0) - x / size).abs() <= noise + 1e-6).all())


@every_dtype
@every_case
def test_a_stack_is_compressed_row_by_row(case, dtype):
    compressor = CASES[case]
    x = torch.stack(list(vectors(dtype).values()))
    if case in MODERATE or "float16" in case:
        x = x.where(x.abs() < 1e10, 1.5)
    key = round_key(0, 3, torch.arange(len(x)))
    payload = compressor.compress(x, key)
    assert payload.dense().shape == x.shape
    assert payload.nbytes().shape == payload.paper_nbytes().shape == (len(x),)
    for i, row in enumerate(payload.rows()):
        alone = compressor.compress(x[i], Key(key.shared, key.own[i]))
        assert same_bits(payload.dense()[i], row.dense())
        if case in MATMUL:
            torch.testing.assert_close(alone.dense(), row.dense())
        else:
            assert same_bits(alone.dense(), row.dense())
            assert alone.encode() == row.encode()


@every_dtype
@every_case
def test_the_wire_carries_the_decoded_value(case, dtype):
    x = torch.stack(list(vectors(dtype).values()))
    if case in MODERATE or "float16" in case:
        x = x.where(x.abs() < 1e10, 1.5)
    payload = CASES[case].compress(x, round_key(0, 1, torch.arange(len(x))))
    for row, size in zip(payload.rows(), payload.nbytes().tolist(), strict=True):
        assert len(row.encode()) == size
        received = decode(encode({"x": row}, FrameKind.UP, 1)).message["x"]
        assert same_bits(received.dense(), row.dense())
        total = torch.zeros(DIM, dtype=dtype)
        row.add_to(total)
        assert torch.equal(total, row.dense().to(dtype))


@every_dtype
@every_case
def test_the_input_is_left_alone(case, dtype):
    x = vectors(dtype)["gaussian"].repeat(3, 1)
    before = x.clone()
    decoded = CASES[case].compress(x, round_key(0, 0, torch.arange(3))).dense()
    assert torch.equal(x, before)
    assert decoded.dtype == (torch.float32 if narrow(CASES[case]) else dtype)


@every_case
def test_the_same_key_gives_the_same_bytes(case):
    x = vectors(torch.float32)["gaussian"]
    first, second = (CASES[case].compress(x, round_key(4, 2, torch.tensor(1))).encode() for _ in range(2))
    assert first == second


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
def test_zero_goes_to_zero(case):
    decoded = CASES[case].compress(torch.zeros(2, DIM), round_key(0, 0, torch.arange(2))).dense()
    assert not decoded.any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", [0, 17, 40, DIM - 1])
@every_case
def test_what_is_not_finite_is_not_sent(case, where, bad):
    """It shows in what is decoded, and cannot be encoded; the other clients' messages are what they were."""
    x = vectors(torch.float32)["gaussian"].repeat(2, 1)
    clean = CASES[case].compress(x, round_key(0, 0, torch.arange(2)))
    x[0, where] = bad
    payload = CASES[case].compress(x, round_key(0, 0, torch.arange(2)))
    assert not bool(payload.dense()[0].isfinite().all())
    torch.testing.assert_close(payload.dense()[1], clean.dense()[1])
    with pytest.raises(WireError):
        payload.rows()[0].encode()


@every_case
def test_a_vector_of_nans_is_not_sent(case):
    payload = CASES[case].compress(torch.full((DIM,), torch.nan), round_keys(1)[0])
    with pytest.raises(WireError):
        payload.encode()


@every_compressor
def test_one_entry_can_be_compressed(name):
    """A single entry; a share of it would be nothing, so it is kept."""
    compressor = COMPRESSORS[name]()
    decoded = compressor.compress(torch.tensor([-2.5]), round_keys(1)[0]).dense()
    assert decoded.tolist() == ([-2.0] if name == "natural" else [-2.5])


@pytest.mark.parametrize("dim", [1, 2, 3, 255, 256, 257, 4097])
@every_compressor
def test_any_length_can_be_compressed(name, dim):
    compressor = COMPRESSORS[name]()
    x = torch.stack([vectors(torch.float32, dim)[kind] for kind in ("gaussian", "heavy-tailed")])
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


@every_dtype
def test_identity(dtype):
    for x in vectors(dtype).values():
        assert same_bits(Identity().compress(x, round_keys(1)[0]).dense(), x)


@pytest.mark.parametrize("name", [n for n in COMPRESSORS if n not in ("layerwise_topk", "powersgd")])
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
