"""What is decoded is what was encoded, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedcef.wire import (
    TABLES,
    Dense,
    FrameKind,
    Levels,
    LevelTables,
    Nonzeros,
    Payload,
    Powers,
    Seeded,
    Sparse,
    Values,
    as_values,
    cast,
    decode,
    encode,
)

from .reference import read_frame, support
from .samples import DTYPES, SUPPORTS, coded, decoded_part, every, relays, sparse, stacks, vector

KINDS = list(stacks(()))


def assert_same(a: Tensor, b: Tensor) -> None:
    assert a.dtype == b.dtype
    assert torch.equal(a, b)
    assert torch.equal(a.signbit(), b.signbit())


@pytest.mark.parametrize("support", SUPPORTS)
def test_sparse(support: str) -> None:
    for dtype in DTYPES:
        sent = sparse(support, dtype)
        data = sent.encode()
        got = decoded_part(data)
        assert isinstance(got, Sparse)
        assert_same(got.values, sent.values)
        assert torch.equal(got.indices, sent.indices)
        assert got.dim == sent.dim
        assert len(data) == int(sent.nbytes())


@pytest.mark.parametrize("dtype", DTYPES)
def test_value_and_size_of_every_kind(dtype: torch.dtype) -> None:
    for sent in stacks((), dtype).values():
        data = sent.encode()
        got = decoded_part(data)
        assert_same(got.dense(), sent.dense())
        assert got.dense().dtype == (torch.float32 if dtype.itemsize == 2 else dtype)
        assert got.encode() == data
        assert int(got.nbytes()) == len(data) == int(sent.nbytes())
        assert sent.dim == got.dim == 600


@pytest.mark.parametrize("kind", coded(()) | relays())
def test_value_and_size_of_every_coded_kind(kind: str) -> None:
    sent = (coded(()) | relays())[kind]
    data = sent.encode()
    got = decoded_part(data)
    assert_same(got.dense(), sent.dense())
    assert got.dense().dtype == torch.float32
    assert got.encode() == data
    assert int(got.nbytes()) == len(data) == int(sent.nbytes())
    assert int(got.paper_nbytes()) == int(sent.paper_nbytes())
    assert sent.dim == got.dim == 600


@pytest.mark.parametrize("kind", every() | relays())
def test_every_kind_against_the_reference_decoder(kind: str) -> None:
    payload = (every() | relays())[kind]
    _, _, parts = read_frame(encode({"c": payload}, FrameKind.DOWN, 0))
    assert_same(torch.from_numpy(parts["c"].vector), payload.dense())


@pytest.mark.parametrize("kind", coded(()))
def test_rows_and_sums_of_every_coded_kind(kind: str) -> None:
    stack = coded((5,))[kind]
    total = torch.zeros(stack.dim)
    for row, value in zip(stack.rows(), stack.dense(), strict=True):
        assert_same(row.dense(), value)
        expected = total + value
        decoded_part(row.encode()).add_to(total)
        assert torch.equal(total, expected)


@pytest.mark.parametrize(("kind", "form"), [("nonzeros", Sparse), ("only nonzeros", Dense), ("no nonzeros", Sparse)])
def test_nonzeros_take_the_smaller_form(kind: str, form: type) -> None:
    assert isinstance(decoded_part(stacks(())[kind].encode()), form)


def test_nonzeros_send_negative_zero_as_zero_in_both_forms() -> None:
    for length in (2, 100):
        sent = Nonzeros(torch.cat([torch.tensor([1.0, -0.0]), torch.full((length - 2,), -0.0)]))
        assert_same(sent.dense(), decoded_part(sent.encode()).dense())
        assert not sent.dense().signbit().any()


def test_seeded_draws_its_support_only_when_asked() -> None:
    got = decoded_part(Seeded(torch.ones(1), torch.tensor(7), 2**32 - 1).encode())  # its support would take 32 GiB
    assert isinstance(got, Seeded)
    assert (int(got.key), got.dim) == (7, 2**32 - 1)


@pytest.mark.parametrize("key", [0, -2, 2**63 - 1, 1234567890123456789])
def test_seeded_draws_the_support_of_the_page(key: int) -> None:
    dense = Seeded(torch.ones(30), torch.tensor(key), 500).dense()
    assert dense.nonzero().squeeze(-1).tolist() == support(key, 500, 30)


def test_decoded_payloads_own_writable_memory() -> None:
    data = bytearray(encode({"z": Dense(torch.ones(3)), "c": sparse("first")}, FrameKind.STATE, 0))
    message = decode(memoryview(data)).message
    data[:] = bytes(len(data))
    dense, kept = message["z"], message["c"]
    assert isinstance(dense, Dense)
    assert isinstance(kept, Sparse)
    dense.values.add_(1)
    kept.indices.add_(1)
    assert dense.values.tolist() == [2.0, 2.0, 2.0]
    assert kept.indices.tolist() == [1]


def test_extreme_values_survive() -> None:
    for dtype in DTYPES:
        info = torch.finfo(dtype)
        values = torch.tensor([info.max, info.min, info.tiny, -info.tiny, info.smallest_normal / 4, -0.0], dtype=dtype)
        got = decoded_part(Dense(values).encode())
        assert isinstance(got, Dense)
        assert_same(got.values, values)


def test_plain_numbers_are_values() -> None:
    numbers = vector(6).view(2, 3)
    values = as_values(numbers)
    assert as_values(values) is values
    assert values.nbytes().tolist() == [len(row.encode()) for row in values.rows()] == [12, 12]
    assert torch.equal(torch.stack([row.dense() for row in values.rows()]), numbers)
    assert values.largest() == float(numbers.abs().max())


def test_cast() -> None:
    values = torch.tensor([1.0, 1 / 3], dtype=torch.float64)
    assert cast(values, "float32").dtype == torch.float32
    assert cast(values, "bfloat16").tolist() == [1.0, 0.333984375]
    assert cast(values, "float16").tolist() == [1.0, 0.333251953125]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_sums(kind: str) -> None:
    stack = stacks((5,), torch.float64)[kind]
    rows = stack.rows()
    total = torch.zeros(stack.dim, dtype=torch.float64)
    for row, value in zip(rows, stack.dense(), strict=True):
        assert_same(row.dense(), value)
        decoded_part(row.encode()).add_to(total)
    torch.testing.assert_close(total / 5, stack.dense().mean(0), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_to_takes_any_value_type(dtype: torch.dtype) -> None:
    for payload in stacks((), dtype).values():
        total = torch.ones(payload.dim)
        payload.add_to(total)
        assert torch.equal(total, 1 + payload.dense().float())


@st.composite
def payloads(draw: st.DrawFn) -> Payload:
    dim = draw(st.integers(1, 300))
    dtype = draw(st.sampled_from(DTYPES))
    indices = torch.tensor(sorted(draw(st.sets(st.integers(0, dim - 1), max_size=40))), dtype=torch.int64)
    values = vector(len(indices), dtype, seed=draw(st.integers(0, 9)))
    stretched = draw(st.sampled_from([1, 17, 70_001]))
    sent = Sparse(values, indices * stretched, dim * stretched)
    if stretched > 1:
        return sent
    return draw(st.sampled_from([sent, Dense(vector(dim, dtype)), Nonzeros(sent.dense().to(dtype))]))


@st.composite
def coded_values(draw: st.DrawFn) -> Values:
    count, block = draw(st.integers(0, 300)), draw(st.sampled_from([0, 1, 7, 64, 1000]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    blocks = -(-count // block) if block else 1
    peaked = random.dirichlet(np.full(16, draw(st.sampled_from([0.02, 0.3, 9.0]))))

    def codes(size: int) -> Tensor:
        return torch.from_numpy(random.choice(16, size=count, p=peaked).astype(np.uint8) % size)

    def numbers(*shape: int) -> Tensor:
        return torch.from_numpy(random.normal(size=shape).astype(np.float32))

    form = draw(st.sampled_from(["levels", "tables", "powers"]))
    if form == "levels":
        table = draw(st.sampled_from(sorted(TABLES)))
        return Levels(codes(len(TABLES[table].levels)), numbers(blocks), table, block)
    if form == "tables":
        bits = draw(st.integers(1, 4))
        return LevelTables(codes(1 << bits), numbers(blocks, 1 << bits), bits, block)
    spread = draw(st.sampled_from([0.1, 1.0, 30.0]))
    return Powers.of((spread * numbers(count)).exp2() * numbers(count).clamp(min=draw(st.sampled_from([-9.0, 0.0]))))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(values=coded_values(), stretched=st.sampled_from([1, 2, 17]))
def test_any_coded_values_against_the_reference_decoder(values: Values, stretched: int) -> None:
    count = values.shape[-1]
    for sent in (Dense(values), Sparse(values, torch.arange(count) * stretched, count * stretched)):
        data = encode({"c": sent}, FrameKind.DOWN, 0)
        assert len(sent.encode()) == int(sent.nbytes())
        got = decode(data).message["c"]
        _, _, parts = read_frame(data)
        assert_same(got.dense(), sent.dense())
        assert_same(got.dense(), torch.from_numpy(parts["c"].vector))
        assert got.encode() == sent.encode()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    message=st.dictionaries(st.text(min_size=1, max_size=5), payloads(), max_size=3),
    kind=st.sampled_from(FrameKind),
    round_=st.integers(0, 2**32 - 1),
)
def test_any_message_against_the_reference_decoder(message: dict[str, Payload], kind: FrameKind, round_: int) -> None:
    data = encode(message, kind, round_)
    frame = decode(data)
    assert (frame.kind, frame.round, list(frame.message)) == (kind, round_, list(message))
    assert encode(frame.message, kind, round_) == data
    expected_kind, expected_round, expected = read_frame(data)
    assert (expected_kind, expected_round) == (kind, round_)
    for name, sent in message.items():
        got = frame.message[name]
        assert isinstance(got, Dense | Sparse)
        assert got.dim == expected[name].dim == sent.dim
        assert got.values.tolist() == expected[name].values
        if isinstance(got, Sparse):
            assert got.indices.tolist() == expected[name].indices
        if sent.dim < 1000:
            assert torch.equal(got.dense(), sent.dense())
