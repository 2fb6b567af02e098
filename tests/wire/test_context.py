"""Vectors coded with what both sides know: exact, refused without it, and near the entropy that it leaves."""

from __future__ import annotations

import zlib
from math import log2

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.wire import (
    Context,
    Dense,
    FrameKind,
    Levels,
    Nonzeros,
    Payload,
    Relay,
    Sparse,
    WireError,
    decode,
    encode,
    faded,
    frame_nbytes,
    head_of,
    smallest,
)

from .reference import Cursor, read_indices, read_values
from .samples import SUPPORTS, every, frame, levels, part, relays, sparse

DIM = 600


def context(lead: tuple[int, ...] = (), dim: int = DIM, *, seed: int = 8) -> Context:
    """Random classes (*lead, dim), a few."""
    size = int(torch.Size((*lead, dim)).numel())
    return Context((rng.uniform(rng.seed_key(seed), size) * 6).to(torch.uint8).reshape(*lead, dim))


def likely(count: int, dim: int, *, seed: int = 0) -> tuple[Tensor, Context]:
    """A support, and a context that tells it nearly: entries of a fifth of the vector are 50 times as likely."""
    uniform = rng.uniform(rng.seed_key(seed), 2 * dim)
    often = uniform[:dim] < 0.2
    share = torch.where(often, 50.0, 1.0)
    chosen = (uniform[dim:].log() / share).topk(count).indices.sort().values  # Efraimidis and Spirakis
    return chosen, Context.of(share)


def part_of(payload: Payload, known: Context | None, *, given: Context | None = None) -> Payload:
    """What comes out of a frame that was coded with `known` and decoded with `given`."""
    coded = {} if known is None else {"c": known}
    data = encode({"c": payload}, FrameKind.DOWN, 3, coded)
    assert len(data) == int(frame_nbytes({"c": payload}, coded))
    return decode(data, max_dim=2**32, contexts={} if given is None else {"c": given}).message["c"]


# Classes 1 0 1 0 1 0 0 1: the order is 1 3 5 6 | 0 2 4 7, in which the entries 2, 6 and 7 have the ranks 5, 3 and 7:
# bits of the bitmap, 0xa8.  The values stay in the order of the entries: signs 0 1 1, as a stream of bits 0x06.
CLASSES = torch.tensor([1, 0, 1, 0, 1, 0, 0, 1], dtype=torch.uint8)
WORKED = Sparse(Levels(torch.tensor([0, 1, 1], dtype=torch.uint8), torch.ones(1), "sign"), torch.tensor([2, 6, 7]), 8)
WORKED_BYTES = "07 05 08000000 {crc} 03000000 01 00000000 0000803f 00 06 01 a8"


def test_bytes_worked_out_by_hand() -> None:
    crc = zlib.crc32(bytes([1, 0, 1, 0, 1, 0, 0, 1])).to_bytes(4, "little").hex()
    data = frame(part(bytes.fromhex(WORKED_BYTES.format(crc=crc))))
    got = decode(data, contexts={"c": Context(CLASSES)}).message["c"]
    assert isinstance(got, Sparse)
    assert got.indices.tolist() == [2, 6, 7]
    assert got.dense().tolist() == [0, 0, -1, 0, 0, 0, 1, 1]
    assert WORKED.encode_given(Context(CLASSES)) == WORKED.encode()  # the checksum costs more than is saved


@pytest.mark.parametrize("table", ["sign", "uniform4"])
def test_the_second_decoder_reads_the_same(table: str) -> None:
    """In plain Python, from docs/wire.md."""
    indices, known = likely(200, 4000)
    payload = Sparse(levels((), 200, table), indices, 4000)
    data = payload.encode_given(known)
    cursor, classes = Cursor(data), known.classes.tolist()
    form, value_type, dim, checksum, count = (cursor.number(size) for size in (1, 1, 4, 4, 4))
    assert (form, dim, checksum, count) == (7, 4000, zlib.crc32(bytes(classes)), 200)
    values = read_values(cursor, value_type, count)
    ranks = read_indices(cursor, cursor.number(1), count, dim)
    assert cursor.at == len(data)
    order = sorted(range(dim), key=lambda j: (classes[j], j))
    vector = np.zeros(dim, dtype=np.float32)
    vector[sorted(order[rank] for rank in ranks)] = values
    assert torch.equal(torch.from_numpy(vector), payload.dense())


@pytest.mark.parametrize("support", [name for name, (_, dim) in SUPPORTS.items() if dim < 2**30])
def test_any_support_comes_back(support: str) -> None:
    payload = sparse(support)
    known = context((), payload.dim)
    got = part_of(payload, known, given=known)
    assert isinstance(got, Sparse)
    assert torch.equal(got.indices, payload.indices)
    assert torch.equal(got.values, payload.values)


@pytest.mark.parametrize("kind", every() | relays())
def test_every_kind_comes_back(kind: str) -> None:
    payload, known = (every() | relays())[kind], context()
    assert torch.equal(part_of(payload, known, given=known).dense(), part_of(payload, None).dense())


@pytest.mark.parametrize("kind", every())
def test_the_sizes_of_stacks(kind: str) -> None:
    """With one context for all or one for each, and never more than without."""
    stack = every((2, 3))[kind]
    for known in (context(), context((2, 3))):
        sizes = stack.nbytes_given(known)
        rows = zip(stack.rows(), known.rows(2), strict=True)
        flat = [pair for row, own in rows for pair in zip(row.rows(), own.rows(3), strict=True)]
        assert sizes.dtype == torch.int64
        assert sizes.flatten().tolist() == [len(payload.encode_given(own)) for payload, own in flat]
        assert (sizes <= stack.nbytes()).all()


def test_forms_that_choose_or_hold_others_use_it() -> None:
    indices, known = likely(300, 60_000)
    payload = Sparse(torch.ones(300), indices, 60_000)
    size = len(payload.encode_given(known))
    assert size < len(payload.encode()) - 20
    nonzeros = Nonzeros(payload.dense())
    assert nonzeros.encode_given(known) == payload.encode_given(known)
    assert Nonzeros(payload.dense().expand(2, 60_000)).nbytes_given(known).tolist() == [size, size]
    assert smallest(Dense(payload.dense()), payload).encode_given(known) == payload.encode_given(known)
    relay = Relay.of([payload, Dense(torch.ones(60_000)), payload], 0.5)
    assert (
        len(relay.encode_given(known))
        == int(relay.nbytes_given(known))
        == len(relay.encode()) - 2 * (len(payload.encode()) - size)
    )
    assert torch.equal(part_of(relay, known, given=known).dense(), relay.dense())


def test_without_a_context_all_is_as_it_was() -> None:
    for payload in (every() | relays()).values():
        assert payload.encode_given(None) == payload.encode()
        assert int(payload.nbytes_given(None)) == int(payload.nbytes())
    message = {"z": sparse("every seventh"), "c": sparse("three clusters")}
    assert encode(message, FrameKind.DOWN, 1, {"other": context()}) == encode(message, FrameKind.DOWN, 1)
    assert head_of(encode(message, FrameKind.DOWN, 7)) == (FrameKind.DOWN, 7)


def test_a_receiver_that_knows_something_else_refuses() -> None:
    indices, known = likely(200, 4000)
    payload = Sparse(levels((), 200, "sign"), indices, 4000)
    with pytest.raises(WireError, match="Part 'c': The vector is coded with a context, and none was given"):
        part_of(payload, known)
    other = Context(known.classes.clone().index_fill(0, torch.tensor([17]), 9))
    with pytest.raises(WireError, match="Part 'c': The vector is coded with a context other than the one given"):
        part_of(payload, known, given=other)
    refusal = "A vector of dimension 4000 cannot be coded with a context of dimension 5"
    for refused in (
        lambda: part_of(payload, known, given=context((), 5)),
        lambda: payload.nbytes_given(context((), 5)),
    ):
        with pytest.raises(WireError, match=refusal):
            refused()
    with pytest.raises(WireError, match="take it apart with rows"):
        Sparse(torch.ones(2, 3), torch.arange(3).expand(2, 3), DIM).encode_given(context())


@pytest.mark.parametrize("kind", ["sparse", "nonzeros", "sparse sign", "smallest"])
def test_sizes_read_nothing_back(kind: str) -> None:
    """On the meta device there are shapes but no values."""
    payload = every((2, 3))[kind].to("meta")
    for known in (context(), context((2, 3))):
        assert payload.nbytes_given(known.to("meta")).shape == (2, 3)
    statistics = torch.empty(4, DIM, device="meta"), torch.empty(DIM, device="meta")
    assert Context.of(*statistics).classes.shape == (4, DIM)


def test_classes_are_half_octaves_of_a_sum_of_magnitudes() -> None:
    numbers = torch.tensor([0.0, -0.0, 2.0**-100, 2.0**-96, 1.5 * 2.0**-96, -1.0, 1.49, 1.75, 2.0, 3e38, float("inf")])
    classes = Context.of(numbers).classes
    assert classes.dtype == torch.uint8
    assert classes.tolist() == [0, 0, 0, 0, 1, 192, 192, 193, 194, 255, 255]
    assert torch.equal(Context.of(numbers.double()).classes, classes)
    assert Context.of(torch.tensor([1.0, -1.0]), torch.tensor([-0.5, 0.25])).classes.tolist() == [193, 192]


def test_what_was_sent_lately_fades() -> None:
    activity = faded(torch.tensor([0.0, 8.0, 1.0]), torch.tensor([-3.0, 0.0, 1.0]))
    assert activity.tolist() == [3.0, 7.0, 1.875]


def test_indices_cost_little_more_than_what_the_context_leaves_open() -> None:
    dim, count = 1_000_000, 10_000
    indices, known = likely(count, dim)
    payload = Sparse(torch.zeros(count).half(), indices, dim)
    often = known.classes == known.classes.max()
    entropy = 0.0
    for members in (often, ~often):
        size, kept = int(members.sum()), int(members[indices].sum())
        share = kept / size
        entropy -= kept * log2(share) + (size - kept) * log2(1 - share)
    bits = 8 * (int(payload.nbytes_given(known)) - 2 * count)
    assert entropy < bits < 1.02 * entropy
    assert bits < 0.8 * 8 * (int(payload.nbytes()) - 2 * count)
