"""Bytes worked out by hand; they change only with the version of the format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fedcef.wire import (
    Dense,
    FrameKind,
    Levels,
    LevelTables,
    LowRank,
    Nonzeros,
    Payload,
    Powers,
    Relay,
    Rotated,
    Seeded,
    Sparse,
    decode,
    encode,
)

from .reference import read_frame

WORKED = Sparse(torch.tensor([1.0, -2.0, 0.5]), torch.tensor([5, 150, 599]), 600)
"""Gaps 5, 144, 448.  Rice with b = 7 (b = 8 is as long): quotients 0, 1, 3 = bits 1 01 0001 = 0x45;
low bits 5, 16, 64, seven each = 5 + (16 << 7) + (64 << 14) = 0x100805."""

GOLDEN: dict[str, tuple[Payload, str]] = {
    "float32": (Dense(torch.tensor([1.0, -2.0])), "01 01 02000000 0000803f 000000c0"),
    "float16": (Dense(torch.tensor([1.0, -2.0]).half()), "01 02 02000000 003c 00c0"),
    "bfloat16": (Dense(torch.tensor([1.0, -2.0]).bfloat16()), "01 03 02000000 803f 00c0"),
    "float64": (Dense(torch.tensor([1.0, -2.0]).double()), "01 04 02000000 000000000000f03f 00000000000000c0"),
    "raw": (Sparse(torch.tensor([0.5]), torch.tensor([258]), 1000), "02 01 e8030000 01000000 0000003f 00 02010000"),
    "bitmap": (
        Sparse(torch.tensor([1.0, -2.0, 0.5]).half(), torch.tensor([0, 3, 9]), 10),
        "02 02 0a000000 03000000 003c 00c0 0038 01 09 02",
    ),
    "rice": (WORKED, "02 01 58020000 03000000 0000803f 000000c0 0000003f 02 07 01000000 45 05 08 10"),
    "empty": (Sparse(torch.zeros(0), torch.zeros(0, dtype=torch.int64), 9), "02 01 09000000 00000000 00"),
    "seeded": (
        Seeded(torch.tensor([1.0, -2.0]), torch.tensor(-2), 10),
        "03 01 0a000000 02000000 0000803f 000000c0 feffffffffffffff",
    ),
    "nonzeros as sparse": (
        Nonzeros(torch.tensor([1.0, 0, -0.0, -2.0, 0, 0, 0, 0, 0, 0.5])),
        "02 01 0a000000 03000000 0000803f 000000c0 0000003f 01 09 02",
    ),
    "nonzeros as dense": (Nonzeros(torch.tensor([1.0, -0.0])), "01 01 02000000 0000803f 00000000"),
}


ONE = torch.ones(1)
MOSTLY_ZERO = torch.full((40,), 7, dtype=torch.uint8)  # code 7 of uniform4 is the level 0
MOSTLY_ZERO[[5, 9, 30]] = torch.tensor([8, 8, 0], dtype=torch.uint8)
DENSE_THEN_SPREAD = torch.cat([torch.arange(128), 1000 + 37 * torch.arange(128)])


def codes(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.uint8)


CODED: dict[str, tuple[Payload, str]] = {
    # bits 1 0 0 1 1 1 0 1, and 1
    "sign": (
        Dense(Levels(codes(1, 0, 0, 1, 1, 1, 0, 1, 1), ONE / 2, "sign")),
        "01 05 09000000 01 00000000 0000003f 00 b901",
    ),
    # two scales; 0 + 3·1 + 9·2 + 27·2 + 81·1 = 0x9c, and 0 + 3·2
    "ternary": (
        Dense(Levels(codes(0, 1, 2, 2, 1, 0, 2), torch.tensor([2.0, 0.5]), "ternary", 4)),
        "01 05 07000000 02 04000000 00000040 0000003f 00 9c06",
    ),
    "uniform4, sparse": (
        Sparse(Levels(codes(0, 14, 7), ONE * 1.5, "uniform4"), torch.tensor([0, 3, 9]), 10),
        "02 05 0a000000 03000000 04 00000000 0000c03f 00 e007 01 0902",
    ),
    "normal2, seeded": (
        Seeded(Levels(codes(3, 0), ONE, "normal2"), torch.tensor(-2), 10),
        "03 05 0a000000 02000000 0a 00000000 0000803f 00 03 feffffffffffffff",
    ),
    # lengths: code 0 has 2 bits, 7 has 1, 8 has 2; codewords 10, 0, 11; 37 zeros are sent as 0
    "Huffman": (
        Dense(Levels(MOSTLY_ZERO, ONE, "uniform4")),
        "01 05 28000000 04 00000000 0000803f 01 0200001002000000 06000000 600c00000100",
    ),
    "tables of levels": (
        Dense(LevelTables(codes(1, 0, 0, 1, 1), torch.tensor([[-1.0, 2.0], [-0.5, 0.25]]), 1, 3)),
        "01 06 05000000 01 03000000 000080bf 00000040 000000bf 0000803e 00 19",
    ),
    # 127, 256 + 128, 0, 126 in nine bits each
    "powers": (Dense(Powers.of(torch.tensor([1.0, -2.0, 0.0, 0.5]))), "01 07 04000000 00 7f0003f003"),
    # exponents 126 and 127; steps 0 0 0 1, four times: bits 1 1 1 01; signs 0 1 0 0
    "powers by Rice": (
        Dense(Powers.of(torch.tensor([1.0, -1.0, 1.0, 0.5]).repeat(4))),
        "01 07 10000000 01 7f 7e 00 03000000 f7de0b 2222",
    ),
    # exponents 126 to 128; steps 1 0 3 2, packed in four bits; no far ones; signs 0 1 0
    "powers by codes": (
        Dense(Powers.of(torch.tensor([1.0, -2.0, 0.0, 0.5]).repeat(4))),
        "01 07 10000000 02 80 7e 00 0123012301230123 9204",
    ),
    "rotated": (
        Rotated(Levels(codes(1, 0, 0, 1), ONE / 2, "sign"), torch.tensor(-2), 3, 4),
        "04 05 03000000 02 feffffffffffffff 01 00000000 0000003f 00 09",
    ),
    "low rank": (
        LowRank(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0, 0.5]), torch.tensor([4.0]), (1, (2, 3)), 1),
        "05 01 07000000 01 02000000 01000000 00000000 02000000 03000000"
        "0000803f 00000040 00004040 000080bf 0000003f 00008040",
    ),
    "relay": (
        Relay(Sparse(torch.tensor([[1.0], [-2.0]]), torch.tensor([[2], [0]]), 3), 0.5),
        "06 00 03000000 000000000000e03f 0200"
        "02 01 03000000 01000000 0000803f 01 04  02 01 03000000 01000000 000000c0 01 01",
    ),
    # 64 codewords 0 of four signs each; gaps 0 (128 times), 872, 36 (127 times); parameters 0 and 6: 0 + (6 << 5);
    # 872 = 13·64 + 40
    "grouped Rice": (
        Sparse(Levels(torch.zeros(256, dtype=torch.uint8), ONE, "sign"), DENSE_THEN_SPREAD, 8000),
        "02 05 401f0000 00010000 01 00000000 0000803f 01 0100000000000000 08000000 0000000000000000 03 22000000 c000"
        + 16 * "ff"
        + "00e0"
        + 15 * "ff"
        + "1f 2849"
        + 31 * "922449"
        + "92",
    ),
}


@pytest.mark.parametrize("name", GOLDEN | CODED)
def test_payload(name: str) -> None:
    payload, expected = (GOLDEN | CODED)[name]
    assert payload.encode() == bytes.fromhex(expected)
    assert int(payload.nbytes()) == len(bytes.fromhex(expected))


def test_the_page_shows_the_code_s_bytes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
    listing = re.search(r"```hex\n(.*?)```", page, re.DOTALL)
    assert listing is not None
    shown = bytes.fromhex(" ".join(line.split("#")[0] for line in listing[1].splitlines()))
    message = {"c": WORKED, "z": Dense(torch.tensor([1.0, -2.0]).half())}
    assert encode(message, FrameKind.DOWN, 7) == shown

    kind, round_, parts = read_frame(shown)
    assert (kind, round_) == (2, 7)
    assert (parts["c"].values, parts["c"].indices, parts["c"].dim) == ([1.0, -2.0, 0.5], [5, 150, 599], 600)
    assert parts["z"].values == [1.0, -2.0]
    frame = decode(shown)
    assert (frame.kind, frame.round, list(frame.message)) == (FrameKind.DOWN, 7, ["c", "z"])


def test_an_empty_message_has_23_bytes() -> None:
    expected = bytes.fromhex("46434546 01 01 00 ffffffff 0000000000000000")
    assert encode({}, FrameKind.UP, 2**32 - 1)[:-4] == expected
