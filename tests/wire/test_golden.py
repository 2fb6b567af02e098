"""Bytes worked out by hand; they change only with the version of the format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fedcef.wire import Dense, FrameKind, Nonzeros, Payload, Seeded, Sparse, decode, encode

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


@pytest.mark.parametrize("name", GOLDEN)
def test_payload(name: str) -> None:
    payload, expected = GOLDEN[name]
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
