"""A stack is measured and added up as one: the sizes and the bits are those of its vectors one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.wire import (
    Context,
    Dense,
    Levels,
    Nonzeros,
    Payload,
    Relay,
    Seeded,
    Smallest,
    Sparse,
    as_stack,
    frame_nbytes,
    mean,
    payload,
    stacks,
)
from fedcef.wire.stacks import in_pieces, sum_in_order

from .samples import DISTINCT, DTYPES, every, masked, vector
from .samples import stacks as plain_stacks


def one_by_one(rows: list[Payload]) -> Tensor:
    """The mean as it is defined: every row in turn added to zeros."""
    total = torch.zeros_like(rows[0].dense())
    for row in rows:
        row.add_to(total)
    return total / torch.full((), len(rows), dtype=total.dtype)


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b) and torch.equal(a.signbit(), b.signbit())


@contextmanager
def small_pieces(monkeypatch: pytest.MonkeyPatch, entries: int) -> Iterator[None]:
    """Stacks of more entries are measured and decoded in pieces."""
    with monkeypatch.context() as patch:
        patch.setattr(stacks, "AT_ONCE", entries)
        patch.setattr(payload, "AT_ONCE", entries)
        yield


@pytest.mark.parametrize("clients", [1, 7])
@pytest.mark.parametrize("kind", every())
def test_the_mean_of_a_stack_is_that_of_its_rows(kind: str, clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = every((clients,))[kind]
    expected = one_by_one(stack.rows())
    assert stack.lead == (clients,)
    assert same_bits(mean(stack), expected)
    assert same_bits(mean(stack.rows()), expected)
    with small_pieces(monkeypatch, 100):
        assert same_bits(mean(stack), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_means_in_every_type(dtype: torch.dtype) -> None:
    for stack in plain_stacks((6,), dtype).values():
        assert same_bits(mean(stack), one_by_one(stack.rows()))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("clients", "dim", "kept"), [(3, 400_000, 150_000), (400, 300, 200), (50, 2, 1), (4, 9, 0)])
def test_entries_that_meet_are_added_in_the_order_of_the_clients(
    clients: int, dim: int, kept: int, threads: int
) -> None:
    """With numbers of very different sizes, so that another order would give other bits."""
    indices = torch.stack([rng.subset(rng.seed_key(client), dim, kept) for client in range(clients)])
    values = (vector(clients * kept) * (8 * vector(clients * kept, seed=1)).exp2()).float().reshape(clients, kept)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for stack in (Sparse(values, indices, dim), Seeded(values, rng.seed_key(3), dim)):
            assert same_bits(mean(stack), one_by_one(stack.rows()))
        if kept > 100:
            assert not torch.equal(Dense(values.flip(0)).total(), Dense(values).total())  # the order is seen
    finally:
        torch.set_num_threads(before)


def test_negative_zeros_do_not_survive_a_sum() -> None:
    zeros = torch.tensor([[-0.0, -0.0], [-0.0, 1.0]])
    for stack in (Dense(zeros), Dense(zeros[:1]), Sparse(zeros, torch.arange(2).expand(2, 2), 2)):
        assert not mean(stack).signbit().any()
    assert not sum_in_order(zeros).signbit().any()


def test_a_sum_does_not_change_what_was_added() -> None:
    vectors = torch.ones(3, 4)
    assert sum_in_order(vectors).tolist() == [3.0] * 4
    assert torch.equal(vectors, torch.ones(3, 4))


@pytest.mark.parametrize("kind", every())
def test_sizes_computed_in_pieces_are_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = every((2, 5))[kind].nbytes()
    with small_pieces(monkeypatch, 1300):
        assert torch.equal(every((2, 5))[kind].nbytes(), whole)
    with small_pieces(monkeypatch, 1):
        assert torch.equal(every((2, 5))[kind].nbytes(), whole)


@pytest.mark.parametrize("kind", DISTINCT)
@pytest.mark.parametrize("known", ["nothing", "the same", "its own"])
def test_a_relay_is_as_long_as_its_rows_together(kind: str, known: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> Relay:
        return Relay(every((5,))[kind].to("cpu"), 0.3)  # a new one each time: sizes are remembered

    statistics = {"nothing": None, "the same": masked((), 600, 0.5), "its own": masked((5,), 600, 0.5)}[known]
    context = None if statistics is None else Context.of(statistics)
    contexts = [None] * 5 if context is None else context.rows(5)
    rows = zip(made().parts.rows(), contexts, strict=True)
    length = 16 + sum(len(row.encode_given(own)) for row, own in rows)
    assert int(made().nbytes_given(context)) == length
    assert int(Relay.of(made().parts.rows(), 0.3).nbytes_given(context)) == length
    with small_pieces(monkeypatch, 700):
        assert int(made().nbytes_given(context)) == length
    assert int(made().paper_nbytes()) == sum(int(row.paper_nbytes()) for row in made().parts.rows())


def test_rows_without_entries_and_ties() -> None:
    """No entries, all entries, and supports for which several codes are as short."""
    empty = Sparse(torch.zeros(3, 0), torch.zeros(3, 0, dtype=torch.int64), 40)
    full = Sparse(torch.ones(3, 8), torch.arange(8).expand(3, 8), 8)
    tied = Sparse(torch.ones(2, 1), torch.tensor([[0], [31]]), 32)  # one raw index is as long as the bitmap
    some = Nonzeros(torch.stack([torch.zeros(64), torch.ones(64), torch.eye(64)[63]]))
    for stack in (empty, full, tied, some):
        lengths = [len(row.encode()) for row in stack.rows()]
        assert stack.nbytes().tolist() == lengths
        assert int(Relay(stack, 1.0).nbytes()) == 16 + sum(lengths)
        assert same_bits(mean(stack), one_by_one(stack.rows()))


def test_pieces_have_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    def compute(x: Tensor, y: Tensor) -> list[Tensor]:
        seen.append(tuple(x.shape))
        return [x.sum(-1), y, x[..., :2]]

    x, y = torch.arange(2.0 * 5 * 6).reshape(2, 5, 6), torch.arange(10).reshape(2, 5)
    whole = compute(x, y)
    with small_pieces(monkeypatch, 20):
        pieces = in_pieces(compute, x, y)
    assert seen[1:] == [(3, 6), (3, 6), (3, 6), (1, 6)]
    assert all(torch.equal(a, b) for a, b in zip(pieces, whole, strict=True))


def test_a_stack_is_measured_once_on_a_cpu() -> None:
    indices = torch.arange(0, 600, 5).expand(3, 120)
    stack = Sparse(masked((3,), 120, 1.0), indices, 600)
    context = Context.of((torch.arange(600) % 5 != 0).float())
    assert stack.measured(None) is stack.measured(None)
    assert stack.measured(context) is stack.measured(context)
    assert torch.equal(stack.measured(context), stack.nbytes_given(context))
    assert (stack.measured(context) < stack.measured(None)).all()
    copy = stack.to("cpu")
    assert copy.measured(None) is not stack.measured(None)
    elsewhere = stack.to("meta")
    assert elsewhere.measured(None) is not elsewhere.measured(None)


def test_up_and_down_count_the_same_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured on its way up is not measured again in the relay."""
    measure, calls = Levels.nbytes, []

    def counted(values: Levels) -> Tensor:
        calls.append(values)
        return measure(values)

    monkeypatch.setattr(Levels, "nbytes", counted)
    stack = Dense(Levels(torch.zeros(4, 300, dtype=torch.uint8), torch.ones(4, 1), "sign"))
    up = frame_nbytes({"c": stack})
    down = frame_nbytes({"c": Smallest((Nonzeros(torch.ones(300)), Relay(stack, 1.0)))})
    assert len(calls) == 1
    assert int(down) < 300 * 4
    assert up.shape == (4,)


def test_single_payloads_are_a_stack() -> None:
    rows = plain_stacks((3,))["sparse"].rows()
    stack = as_stack(rows)
    assert stack.lead == (3,)
    assert stack.rows() == rows
    assert as_stack(stack) is stack
