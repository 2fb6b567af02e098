"""What bytes of anyone's making cost: work that goes with their length and the vectors that are asked for."""

from __future__ import annotations

import struct
from functools import partial

import pytest
import torch

from fedcef.core import rng
from fedcef.wire import (
    Dense,
    FrameKind,
    LowRank,
    OtherPartsError,
    Payload,
    Powers,
    Rotated,
    Seeded,
    Sparse,
    WireError,
    decode,
    encode,
)
from fedcef.wire.forms import low_rank

from .samples import DISTINCT, every, frame, level_tables, levels, part, vector
from .work import instructions

PER_PAYLOAD = 4_000
"""Instructions for a payload of any kind, from its bytes to its vector; the most is about 2,000."""
PER_ENTRY = 15
"""The same for each entry, where they are in a Huffman code: that is followed by hand, four codewords at a time."""


def relay_of(payloads: list[bytes], dim: int, *, kind: int = 2) -> bytes:
    """A frame that passes on these payloads."""
    fields = struct.pack("<BBIdH", 6, 0, dim, 1.0, len(payloads))
    return frame(part(fields + b"".join(payloads)), kind=kind)


def vectors_of(data: bytes) -> None:
    for payload in decode(data).message.values():
        payload.dense()


@pytest.mark.parametrize("name", DISTINCT)
def test_a_payload_s_work_is_bounded(name: str) -> None:
    data = encode({"c": every()[name]}, FrameKind.UP, 0)
    assert instructions(lambda: vectors_of(data)) < PER_PAYLOAD + PER_ENTRY * 600


def test_long_vectors_are_read_in_pieces_and_not_entry_by_entry() -> None:
    count = 20_000
    support = rng.subset(rng.seed_key(0), 9 * count, count)
    in_huffman_code = {
        "signs": Dense(levels((), count, "sign")),
        "levels": Dense(levels((), count, "normal4")),
        "tables": Dense(level_tables((), count, 4, 50)),
        "powers": Dense(Powers.of(vector(count))),
        "indices": Sparse(levels((), count, "ternary"), support, 9 * count),
    }
    others = {
        "numbers": Dense(vector(count)),
        "packed": Dense(levels((), count, "uniform8", 32)),
        "grouped": Sparse(vector(count).half(), support, 9 * count),
        "all": Sparse(vector(count).half(), torch.arange(count), count),
        "rotated": Rotated(vector(2**15), torch.tensor(1), count, 2**15),
    }
    for payload in others.values():
        data = encode({"c": payload}, FrameKind.UP, 0)
        assert instructions(partial(vectors_of, data)) < PER_PAYLOAD
    for payload in in_huffman_code.values():
        data = encode({"c": payload}, FrameKind.UP, 0)
        assert instructions(partial(vectors_of, data)) < PER_PAYLOAD + PER_ENTRY * count


@pytest.mark.parametrize(
    "payload", [Sparse(torch.ones(1), torch.tensor([7]), 90), Seeded(torch.ones(1), torch.tensor(3), 90)]
)
def test_a_relay_s_work_goes_with_its_payloads(payload: Payload) -> None:
    few, many = (relay_of([payload.encode()] * number, 90) for number in (20, 40))
    each = (instructions(partial(vectors_of, many)) - instructions(partial(vectors_of, few))) / 20
    assert each < PER_PAYLOAD / 2


@pytest.mark.parametrize("kind", [1, 3])
def test_only_what_comes_down_may_be_a_relay(kind: int) -> None:
    """That is told from its head: the work is the same for one payload and for thousands."""
    one, many = (relay_of([Dense(torch.ones(3)).encode()] * number, 3, kind=kind) for number in (1, 3000))
    with pytest.raises(WireError, match="Part 'c': There can be no relay here; relays come down from the server"):
        decode(many)
    assert instructions(lambda: decode(one)) == instructions(lambda: decode(many))
    sent = decode(relay_of([Dense(torch.ones(3)).encode()], 3)).message
    with pytest.raises(WireError, match=r"A relay cannot be sent in a frame of kind .*; relays only come down"):
        encode(sent, FrameKind(kind), 0)


def test_a_receiver_says_how_many_payloads_it_accepts() -> None:
    data = relay_of([Dense(torch.ones(3)).encode()] * 3000, 3)
    assert decode(data, max_relayed=3000).message["c"].dense().tolist() == [1, 1, 1]
    with pytest.raises(WireError, match="Part 'c': A relay holds 3000 payloads; at most 2999 are accepted here"):
        decode(data, max_relayed=2999)
    assert instructions(lambda: decode(data, max_relayed=2999)) < 1_000


def test_vectors_that_are_not_expected_are_not_read() -> None:
    seeded = [part(Seeded(torch.ones(1), torch.tensor(i), 90).encode(), b"%d" % i) for i in range(16)]
    data = frame(*seeded)
    assert decode(data, expected={str(i): 90 for i in range(16)}).message.keys() == {str(i) for i in range(16)}
    for expected, sentence in {
        "The frame has 16 vectors; expected are 'c' of 90": {"c": 90},
        "The frame has 16 vectors; expected are none": {},
        "Part '3' has 90 entries; expected are '0' of 90, '1' of 90, '2' of 90, '3' of 91": {
            str(i): 90 + (i == 3) for i in range(16)
        },
        "Part '15' has 90 entries; expected": {str(i): 90 for i in range(15)} | {"c": 90},
    }.items():
        with pytest.raises(OtherPartsError, match=expected):
            decode(data, expected=sentence)
    assert instructions(lambda: decode(data, expected={"c": 90})) < 500


def many_shapes(number: int, rank: int = 2) -> LowRank:
    """Tiny matrices and stretches, no two neighbours alike."""
    kinds: list[low_rank.Shape] = [(1, 2), 1, (2, 1), (1, 1), 0, 2]
    shapes = tuple(kinds[i % len(kinds)] for i in range(number))
    matrices = [shape for shape in shapes if isinstance(shape, tuple)]
    sizes = [rank * sum(n for n, _ in matrices), rank * sum(m for _, m in matrices)]
    sizes.append(sum(shape for shape in shapes if isinstance(shape, int)))
    left, right, rest = (vector(size, seed=seed) for seed, size in enumerate(sizes))
    return LowRank(left, right, rest, shapes, rank)


def test_many_shapes_are_multiplied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = many_shapes(3000)
    together = payload.dense()
    got = decode(encode({"c": payload}, FrameKind.UP, 0)).message["c"]
    assert torch.equal(got.dense(), together)
    assert instructions(got.dense) < 30 * len(payload.shapes)  # one by one it is about 200 each
    monkeypatch.setattr(low_rank, "MANY", 10**6)
    assert torch.equal(payload.dense(), together)
    stack = LowRank(
        payload.left.expand(2, -1), payload.right.expand(2, -1), payload.rest.expand(2, -1), payload.shapes, 2
    )
    monkeypatch.setattr(low_rank, "MANY", 0)
    assert torch.equal(stack.dense(), together.expand(2, -1))


def test_a_support_is_drawn_in_one_pass() -> None:
    payload = Seeded(torch.ones(3), torch.tensor(5), 200_000)
    got = decode(encode({"c": payload}, FrameKind.UP, 0)).message["c"]
    assert instructions(got.dense) < 2_000
    assert torch.equal(got.dense(), payload.dense())
