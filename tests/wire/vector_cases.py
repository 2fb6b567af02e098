"""The frames of docs/vectors: what every decoder must read, and what it must refuse (tools/wire_vectors.py)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.wire import (
    TABLES,
    Context,
    Dense,
    Frame,
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
    rotate,
)

from .samples import frame, part
from .test_coded_errors import BAD
from .test_errors import BAD_BYTES, NON_FINITE

UP, DOWN, STATE = FrameKind
HEADER, DIM, KEPT = 19, 40, 6
KEY = torch.tensor(-2)
SUPPORT = torch.tensor([0, 3, 9, 17, 18, 39])
BUNCHED = torch.cat([torch.arange(128), 1000 + 37 * torch.arange(60)])
CLASSES = Context((((torch.arange(900) ** 3 * 31) % 1009 >= 100) * 7).to(torch.uint8))
ONE = torch.ones(1)


def numbers(count: int, *, kept: float = 1.0) -> Tensor:
    """Made up by exact operations alone, so that any machine gets the same; the share `kept` of them is not zero."""
    draws = rng.uniform(rng.seed_key(count), 2 * count)
    return torch.where(draws[count:] < kept, 4 * draws[:count] - 2, 0.0).float()


def codes(count: int, size: int, *, spread: float = 1.0) -> Tensor:
    """Below `size`; the smaller the spread, the more of them are alike."""
    draws = rng.uniform(rng.seed_key(size), 4 * count).reshape(4, count).sum(0) - 2
    return ((draws * spread + 0.3) * size).floor().clamp(0, size - 1).to(torch.uint8)


def levels(count: int, table: str, block: int = 0) -> Levels:
    """Of a table, with a scale for each block."""
    scales = numbers(-(-count // block) if block else 1).abs()
    return Levels(codes(count, len(TABLES[table].levels), spread=0.3), scales, table, block)


FULL = numbers(DIM)


@dataclass
class Case:
    """A frame, and what a receiver is told beside it."""

    name: str
    data: bytes
    contexts: Mapping[str, Context] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)

    def read(self) -> Frame:
        """What this package's decoder makes of it."""
        return decode(self.data, contexts=self.contexts, **self.limits)  # type: ignore[arg-type]


def of(payload: Payload, kind: FrameKind = UP) -> bytes:
    """A frame of one part."""
    return encode({"c": payload}, kind, 3)


def extremes(dtype: torch.dtype) -> Tensor:
    """Some numbers of a type, its smallest and largest and a negative zero among them."""
    limits = torch.finfo(dtype)
    return torch.tensor([1.0, -2.5, -0.0, limits.smallest_normal / 4, limits.max, limits.min], dtype=dtype)


# what must be read


def valid() -> Iterator[Case]:
    """Frames of every form, value type, coding and index code."""
    yield Case("an empty message, in the last round", encode({}, UP, 2**32 - 1))
    several = {"c": Dense(torch.ones(2)), "größe": Dense(torch.ones(1).half()), "v" * 255: Dense(torch.ones(0))}
    for kind in FrameKind:
        yield Case(f"three parts, {kind.name.lower()}", encode(several, kind, 7))
    for name, message, kind in EXAMPLES:
        yield Case(name, encode(message, kind, 7))
    for name, payload in payloads().items():
        yield Case(name, of(payload, DOWN if isinstance(payload, Relay) else UP))
    yield from [*in_context(), *unusual()]


def payloads() -> dict[str, Payload]:
    """Vectors as an encoder writes them."""
    kinds = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    found: dict[str, Payload] = {f"dense, {str(kind)[6:]}": Dense(extremes(kind)) for kind in kinds}
    found |= {
        "dense, no entries": Dense(torch.ones(0)),
        "sparse, raw indices": Sparse(torch.tensor([0.5]), torch.tensor([258]), 1000),
        "sparse, bitmap": Sparse(FULL[:KEPT].half(), SUPPORT, DIM),
        "sparse, Rice with parameter 0": Sparse(FULL[:20].half(), torch.arange(20) + 5, 200),
        "sparse, Rice": Sparse(FULL[:9], torch.arange(9) * 90 + 3, 900),
        "sparse, grouped Rice": Sparse(levels(len(BUNCHED), "sign"), BUNCHED, 4000),
        "sparse, nothing kept": Sparse(FULL[:0], SUPPORT[:0], DIM),
        "sparse, everything kept": Sparse(FULL.bfloat16(), torch.arange(DIM), DIM),
        "sparse, the last of 2^31": Sparse(torch.ones(1), torch.tensor([2**31 - 1]), 2**31),
        "seeded, negative key": Seeded(FULL[:KEPT], KEY, DIM),
        "seeded, positive key": Seeded(FULL[:KEPT].double(), torch.tensor(2**62 + 5), DIM),
        "seeded, everything kept": Seeded(FULL.half(), torch.tensor(0), DIM),
        "seeded, nothing kept": Seeded(FULL[:0], torch.tensor(1), DIM),
        "without zeros, as sparse": Nonzeros(numbers(300, kept=0.03)),
        "without zeros, as dense": Nonzeros(torch.tensor([1.0, -0.0])),
    }
    for name, table in TABLES.items():
        size = len(table.levels)
        found[f"levels, {name}, packed"] = Dense(Levels(codes(13, size), ONE / 2, name))
        if size <= 16:
            peaked = codes(160, size, spread=0.2)
            found[f"levels, {name}, Huffman"] = Dense(Levels(peaked, ONE * 3, name))
    found["levels, sparse, three scales"] = Sparse(levels(KEPT, "uniform4", 2), SUPPORT, DIM)
    found["levels, a block longer than all"] = Dense(levels(KEPT, "normal3", 100))
    found["levels, nothing kept, no scales"] = Sparse(levels(0, "sign", 4), SUPPORT[:0], DIM)
    for bits in (1, 2, 3, 4):
        flat, peaked = codes(13, 1 << bits), codes(200, 1 << bits, spread=0.2)
        tables = numbers(2 << bits).reshape(2, -1)
        found[f"tables of {bits} bits, packed"] = Dense(LevelTables(flat, tables, bits, 7))
        found[f"tables of {bits} bits, Huffman"] = Dense(LevelTables(peaked, tables[:1], bits))
    zeros = torch.tensor([1.0, -2.0, 0.0, 0.5])
    near, far = codes(150, 6, spread=0.1).short() + 120, codes(30, 24).short() + 90
    near[::7], far[::3] = 0, far[::3] + 256
    found |= {
        "powers of two, fixed": Dense(Powers.of(zeros)),
        "powers of two, Rice": Dense(Powers.of(torch.tensor([1.0, -1.0, 1.0, 0.5]).repeat(4))),
        "powers of two, Rice with low bits": Dense(Powers(far)),
        "powers of two, packed codes": Dense(Powers.of(zeros.repeat(4))),
        "powers of two, Huffman and far ones": Dense(Powers(torch.cat([near, far[:9]]))),
        "powers of two, only zeros": Dense(Powers.of(torch.zeros(30))),
        "rotated, blocks of 1": Rotated(rotate(FULL, KEY, 1), KEY, DIM, 1),
        "rotated, a last block that is not full": Rotated(rotate(FULL, KEY, 16).half(), KEY, DIM, 16),
        "rotated levels": Rotated(levels(48, "normal2", 16), torch.tensor(77), DIM, 16),
        "rotated, one block longer than the vector": Rotated(levels(64, "sign"), KEY, DIM, 64),
        "low rank": LowRank(FULL[:14], FULL[14:26], FULL[26:], (10, (4, 4), 4, (3, 2)), 2),
        "low rank, one column": LowRank(FULL[:3], FULL[3:4], FULL[:0], ((3, 1),), 1),
        "low rank, only a stretch": LowRank(FULL[:0], FULL[:0], FULL, (DIM,), 255),
    }
    relayed = [found["sparse, bitmap"], found["without zeros, as dense"], found["seeded, negative key"]]
    found["relay of one"] = Relay.of([relayed[0]], 0.3)
    found["relay of several forms"] = Relay.of([relayed[0], relayed[2], Dense(-FULL), found["rotated levels"]], -0.7)
    found["relay in binary64"] = Relay.of([found["seeded, positive key"], Dense(FULL)], 1 / 3)
    found["relay in binary32 of binary64"] = Relay.of([Dense(FULL), found["seeded, positive key"]], 1 / 3)
    found["relay of low rank"] = Relay.of([found["low rank"], found["low rank"]], 1.0)
    found["relay whose sum has zeros"] = Relay.of([Dense(FULL), Dense(-FULL)], -1.0)
    return found


def in_context() -> Iterator[Case]:
    """Frames that are coded with a context."""
    often = (CLASSES.classes == 0).nonzero().squeeze(-1)
    found: dict[str, Payload] = {
        "sparse in context": Sparse(levels(60, "sign"), often[5:65], 900),
        "sparse in context, numbers": Sparse(
            numbers(70).half(), torch.cat([torch.tensor([1]), often[often > 1][:69]]), 900
        ),
    }
    found["relay in context"] = Relay.of([*found.values(), Dense(torch.ones(900).half())], 0.5)
    found["a context that is not used"] = Sparse(torch.ones(1), torch.tensor([2]), 900)
    for name, payload in found.items():
        kind = DOWN if isinstance(payload, Relay) else UP
        yield Case(name, encode({"c": payload}, kind, 3, {"c": CLASSES}), {"c": CLASSES})


def unusual() -> Iterator[Case]:
    """Frames that an encoder would rather not write, and that every decoder reads."""

    def body(form: int, values: int, dim: int, *fields: bytes) -> bytes:
        return frame(part(struct.pack("<BBI", form, values, dim) + b"".join(fields)), kind=1)

    def two(section: bytes) -> bytes:
        """Two float16 ones of ten entries."""
        return body(2, 2, 10, struct.pack("<I", 2), b"\x00\x3c" * 2, section)

    eight, factors = struct.pack("<BIf", 7, 0, 1.0), struct.pack("<7f", 1, 2, 3, 4, 5, 6, 7)
    exponents = {
        "by Rice, whose range is wider than what occurs": "01 c8 03 00 0a000000" + 9 * "00" + "82 01",
        "by Rice, with a range of none": "01 09 0a 00 01000000 03",
        "by Huffman, with a range of none": "02 fe ff 00 00",
    }
    for name, data in {
        "raw where a bitmap is shorter": two(b"\0" + struct.pack("<II", 3, 9)),
        "Rice where a bitmap is shorter": two(b"\2\3\1\0\0\0\3\x2b"),
        "Rice with parameter 31": two(b"\2\x1f\1\0\0\0\3" + struct.pack("<Q", 3 | 5 << 31)),
        "grouped Rice for two indices": two(b"\3\1\0\0\0\x1f\3" + struct.pack("<Q", 3 | 5 << 31)),
        "a Huffman code for a few codes": body(1, 5, 3, eight, b"\1\x11\0\0\0", b"\1\0\0\0\2"),
        "a Huffman code with lengths up to 15": body(
            1, 5, 2, struct.pack("<BIf", 12, 0, 1.0), b"\1\x21\x43\x65\x87\xa9\xcb\xed\xff", b"\2\0\0\0\xff\x7f"
        ),
        "a Huffman code of one symbol": body(1, 5, 3, eight, b"\1\x10\0\0\0", b"\1\0\0\0\0"),
        **{f"powers of two {name}": body(1, 7, 2, bytes.fromhex(coded)) for name, coded in exponents.items()},
        "low rank with stretches of nothing": body(
            5, 1, 8, struct.pack("<BI8I", 1, 4, 0, 0, 2, 3, 0, 0, 2, 0), factors
        ),
        "sparse though dense is shorter": body(2, 1, 2, struct.pack("<Iff", 2, 1, -0.0), b"\1\3"),
    }.items():
        yield Case(name, data)


EXAMPLES: list[tuple[str, dict[str, Payload], FrameKind]] = [
    (
        "example 1",
        {
            "c": Sparse(torch.tensor([1.0, -2.0, 0.5]), torch.tensor([5, 150, 599]), 600),
            "z": Dense(torch.tensor([1.0, -2.0]).half()),
        },
        DOWN,
    ),
    (
        "example 2",
        {"c": Sparse(Levels(torch.tensor([1, 0, 0, 1, 1]).byte(), ONE / 2, "sign"), SUPPORT[:5], 20)},
        UP,
    ),
    ("example 3", {"c": Seeded(torch.tensor([1.0, -2.0]).half(), KEY, 10)}, UP),
    (
        "example 4",
        {
            "a": Dense(Powers.of(torch.tensor([1.0, -1.0, 1.0, 0.5]).repeat(4))),
            "b": Dense(
                Levels(torch.tensor([7] * 5 + [8] + [7] * 3 + [8] + [7] * 20 + [0] + [7] * 9).byte(), ONE, "uniform4")
            ),
        },
        UP,
    ),
    (
        "example 5",
        {
            "r": Rotated(Levels(torch.tensor([1, 0, 0, 0]).byte(), ONE / 2, "sign"), KEY, 3, 4),
            "l": LowRank(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0, 0.5]), torch.tensor([4.0]), (1, (2, 3)), 1),
        },
        UP,
    ),
    (
        "example 6",
        {"c": Relay.of([Sparse(ONE * 1.0, torch.tensor([2]), 3), Sparse(ONE * -2.0, torch.tensor([0]), 3)], 0.5)},
        DOWN,
    ),
]
"""Those that the page explains byte by byte."""


# what must be refused


def refused() -> Iterator[Case]:
    """Frames that break one rule each; sentences say which."""
    for name, (data, _) in {
        **BAD_BYTES,
        **{f"coded: {k}": v for k, v in BAD.items()},
    }.items():
        yield Case(name, data)
    for code, bits in NON_FINITE.items():
        value = bytes.fromhex(bits)
        yield Case(f"not finite, type {code}", frame(part(struct.pack("<BBI", 1, code, 2) + bytes(len(value)) + value)))
    dense = Dense(torch.ones(3))
    relay = part(Relay.of([dense, dense], 1.0).encode())
    known = {case.name: case.data for case in in_context()}["sparse in context"]
    for kind in (UP, STATE):
        yield Case(f"a relay in a frame of kind {kind.name.lower()}", frame(relay, kind=kind))
    yield Case("a relay of more than are accepted", frame(relay), limits={"max_relayed": 1})
    yield Case("a vector longer than is accepted", frame(part(dense.encode())), limits={"max_dim": 2})
    yield Case("a context that is not there", known)
    yield Case("another context", known, {"c": Context(CLASSES.classes.flip(0))})
    yield Case("a context of another dim", known, {"c": Context(CLASSES.classes[1:])})
    yield Case("a context in a state", frame(known[HEADER:-4], kind=STATE), {"c": CLASSES})
    scaled = struct.pack("<BIf", 1, 0, 2.0**40) + b"\0\0"
    yield Case("a scale of 2^40 in a rotation", frame(part(struct.pack("<BBIBq", 4, 5, 1, 0, 0) + scaled)))
    level = struct.pack("<BBIBI2f", 1, 6, 1, 1, 0, 1.0, 2.0**40) + b"\0\0"
    yield Case(
        "a level of 2^40 in a relay that no value has", frame(part(struct.pack("<BBIdH", 6, 0, 1, 1.0, 1) + level))
    )
    for form in (0, 8, 191):
        yield Case(f"form {form}", frame(part(struct.pack("<BBI", form, 1, 0))))
    yield Case(
        "a form of a package that is not there", frame(part(struct.pack("<BBI", 200, 0, 3) + b"\4none" + bytes(3)))
    )
    yield Case("a value type of a package that is not there", frame(part(struct.pack("<BBI", 1, 200, 3) + b"\4none")))
