"""Every way in which the shorter forms of values and vectors can be wrong, and the sentence that says so."""

from __future__ import annotations

import struct

import pytest
import torch

from fedcef.wire import (
    Dense,
    Levels,
    LevelTables,
    LowRank,
    Payload,
    Powers,
    Relay,
    Rotated,
    Sparse,
    WireError,
    decode,
)

from .samples import frame, part

ONE = struct.pack("<f", 1.0)
INFINITY = struct.pack("<f", float("inf"))


def payload(form: int, values: int, dim: int, *fields: bytes) -> bytes:
    return frame(part(struct.pack("<BBI", form, values, dim) + b"".join(fields)))


def levels(dim: int, table: int, block: int, *fields: bytes) -> bytes:
    return payload(1, 5, dim, struct.pack("<BI", table, block), *fields)


def huffman(dim: int, lengths: str, stream: str, *, declared: int | None = None) -> bytes:
    """Codes of log3bit (eight of them) with these lengths of the first four codewords; the others do not occur."""
    data = bytes.fromhex(stream)
    size = struct.pack("<I", len(data) if declared is None else declared)
    return levels(dim, 7, 0, ONE, b"\1", bytes.fromhex(lengths) + bytes(2), size, data)


def powers(dim: int, top: int, low: int, rice: int, unary: str, rest: str, *, declared: int | None = None) -> bytes:
    stream = bytes.fromhex(unary)
    size = len(stream) if declared is None else declared
    return payload(1, 7, dim, b"\1", struct.pack("<BBBI", top, low, rice, size), stream, bytes.fromhex(rest))


def grouped(count: int, parameters: str, unary: str, low: str, *, dim: int = 10, declared: int | None = None) -> bytes:
    """A sparse payload of float16 ones with grouped Rice indices."""
    stream = bytes.fromhex(unary)
    size = struct.pack("<I", len(stream) if declared is None else declared)
    section = b"\3" + size + bytes.fromhex(parameters) + stream + bytes.fromhex(low)
    return payload(2, 2, dim, struct.pack("<I", count), b"\x00\x3c" * count, section)


def low_rank(dim: int, rank: int, shapes: list[tuple[int, int]], numbers: int, value: float = 1.0) -> bytes:
    fields = struct.pack("<BI", rank, len(shapes)) + b"".join(struct.pack("<II", *shape) for shape in shapes)
    return payload(5, 1, dim, fields, struct.pack("<f", value) * numbers)


def relay(dim: int, factor: float, *parts: bytes, count: int | None = None, values: int = 0) -> bytes:
    return payload(6, values, dim, struct.pack("<dH", factor, len(parts) if count is None else count), *parts)


def inner(dim: int, value: float = 1.0) -> bytes:
    return struct.pack("<BBI", 1, 1, dim) + struct.pack("<f", value) * dim


BAD: dict[str, tuple[bytes, str]] = {
    "no levels": (payload(1, 5, 3, b"\1"), "5 bytes are needed for the table and block of levels, but only 1"),
    "table": (levels(3, 13, 0), "Unknown table of levels 13; allowed are 1 .sign., 2 .ternary., 3"),
    "scales": (levels(3, 1, 2, ONE), "8 bytes are needed for 2 scales, but only 4"),
    "infinite scale": (levels(3, 1, 0, INFINITY), "Value number 0 of 1 is not finite"),
    "large scale": (
        levels(3, 1, 0, struct.pack("<f", 2.0**125)),
        "Scales must be smaller than 4.25353e.37 in magnitude",
    ),
    "no coding": (levels(3, 1, 0, ONE), "1 bytes are needed for the coding of the levels' codes, but only 0"),
    "coding": (levels(3, 1, 0, ONE, b"\2"), "Unknown coding 2 of 2 codes; allowed are 0 .packed. and 1 .Huffman."),
    "no Huffman": (levels(3, 5, 0, ONE, b"\1"), "Unknown coding 1 of 255 codes; allowed are 0 .packed.\\."),
    "codes": (levels(3, 4, 0, ONE, b"\0\0"), "2 bytes are needed for the levels' codes, but only 1"),
    "code padding": (levels(3, 4, 0, ONE, b"\0\0\x10"), "stream of codes has non-zero padding after its 12 bits"),
    "unused code": (levels(2, 4, 0, ONE, b"\0\xf0"), "Code 15 is none of the 15 that there are levels for"),
    "unused code of eight bits": (levels(1, 5, 0, ONE, b"\0\xff"), "Code 255 is none of the 255"),
    "base 3": (levels(5, 2, 0, ONE, b"\0\xf3"), "Byte 243 does not stand for five codes in base 3; the largest is 242"),
    "base 3 padding": (levels(2, 2, 0, ONE, b"\0\x09"), "non-zero padding after its 2 codes"),
    "code lengths": (levels(3, 7, 0, ONE, b"\1\x11"), "4 bytes are needed for the Huffman code's lengths, but only 1"),
    "length padding": (
        levels(2, 2, 0, ONE, b"\1\x11\0\0\0\x10"),
        "list of code lengths has non-zero padding after its 36 bits",
    ),
    "too many codewords": (
        huffman(3, "1111", "00"),
        r"Lengths \[1, 1, 1, 1, 0, 0, 0, 0\] are not those of a complete Huffman code",
    ),
    "too few codewords": (huffman(3, "2100", "00"), r"Lengths \[1, 2, 0, 0, 0, 0, 0, 0\] are not those of a complete"),
    "no codewords": (huffman(3, "0000", "00"), r"Lengths \[0, 0, 0, 0, 0, 0, 0, 0\] are not those of a complete"),
    "Huffman length": (huffman(3, "1100", "", declared=9), "9 bytes are needed for the Huffman stream, but only 0"),
    "Huffman short": (huffman(9, "1100", "00"), "A stream of 1 bytes is too short for 9 Huffman codewords"),
    "Huffman ends": (huffman(7, "2222", "00"), "The Huffman stream ends after 4 of 7 codewords"),
    "Huffman long": (huffman(3, "1100", "0000"), "The Huffman stream has 2 bytes where its 3 codewords take 1"),
    "Huffman padding": (huffman(3, "1100", "08"), "The Huffman stream has non-zero padding after its 3 bits"),
    "one codeword": (huffman(3, "0100", "01"), "The Huffman stream of a single symbol holds one-bits"),
    "one long codeword": (huffman(3, "0100", "0000"), "The Huffman stream has 2 bytes where its 3 codewords take 1"),
    "table bits": (
        payload(1, 6, 3, struct.pack("<BI", 5, 0)),
        "Tables of levels for 5 bits are not allowed; bits are 1 to 4",
    ),
    "no bits": (payload(1, 6, 3, struct.pack("<BI", 0, 0)), "Tables of levels for 0 bits are not allowed"),
    "tables": (payload(1, 6, 3, struct.pack("<BI", 1, 2), ONE * 3), "16 bytes are needed for 4 levels, but only 12"),
    "power coding": (
        payload(1, 7, 3, b"\3"),
        "Unknown coding 3 of exponents; allowed are 0 .fixed., 1 .Rice. and 2 .Huffman.",
    ),
    "power fixed": (payload(1, 7, 3, b"\0\0\0"), "4 bytes are needed for the exponents, but only 2"),
    "power padding": (payload(1, 7, 1, b"\0\1\2"), "stream of exponents has non-zero padding after its 9 bits"),
    "infinite power": (payload(1, 7, 1, b"\0\xff\0"), "Code 255 at entry 0 stands for no power of two"),
    "negative zero": (payload(1, 7, 1, b"\0\0\1"), "Code 256 at entry 0 stands for no power of two"),
    "power header": (payload(1, 7, 3, b"\1\x80"), "2 bytes are needed for the range of exponents, but only 1"),
    "power Rice": (
        payload(1, 7, 3, b"\1\x80\x80\1"),
        "5 bytes are needed for the Rice parameter of exponents, but only 1",
    ),
    "far powers": (payload(1, 7, 2, b"\2\x80\x10\0\xff\0"), "2 bytes are needed for 2 far exponents, but only 1"),
    "farther powers": (payload(1, 7, 1, b"\2\x80\x71\0\x0f\2"), "lies 17 below the largest, 128; the smallest is 113"),
    "missing tuple": (
        levels(1, 2, 0, ONE, b"\1" + bytes.fromhex("1000000001"), b"\1\0\0\0\1"),
        "non-zero padding after its 1 codes",
    ),
    "power parameter": (powers(1, 9, 9, 8, "01", ""), "Rice parameter 8 of exponents is not allowed; the largest is 7"),
    "exponents": (powers(1, 9, 11, 0, "01", ""), "Exponents from 11 to 9 are not allowed"),
    "largest exponent": (powers(1, 255, 9, 0, "01", ""), "Exponents from 9 to 255 are not allowed"),
    "smallest exponent": (powers(1, 9, 0, 0, "01", ""), "Exponents from 0 to 9 are not allowed"),
    "power unary": (powers(1, 9, 9, 0, "", "", declared=9), "9 bytes are needed for the unary stream of exponents"),
    "power ones": (
        powers(2, 9, 9, 0, "01", ""),
        "unary stream of exponents holds 1 one-bits where the entry count says 2",
    ),
    "power goes on": (powers(1, 9, 9, 0, "0100", ""), "unary stream of 2 bytes goes on after its last number"),
    "far power": (powers(1, 9, 9, 0, 32 * "00" + "01", ""), "An exponent lies 256 steps below the largest; 255"),
    "power below": (powers(1, 9, 8, 0, "08", ""), "An exponent lies 3 below the largest, 9; the smallest is 8"),
    "signs": (powers(1, 9, 9, 0, "01", ""), "1 bytes are needed for the signs, but only 0"),
    "sign padding": (powers(1, 9, 9, 0, "01", "02"), "stream of signs has non-zero padding after its 1 bits"),
    "grouped header": (
        payload(2, 2, 9, b"\1\0\0\0", b"\0\x3c", b"\3\0"),
        "4 bytes are needed for the header of grouped Rice",
    ),
    "parameters": (grouped(1, "", "", ""), "1 bytes are needed for the Rice parameters of 1 groups, but only 0"),
    "parameter padding": (
        grouped(1, "20", "01", ""),
        "stream of Rice parameters has non-zero padding after its 5 bits",
    ),
    "grouped unary": (
        grouped(1, "00", "", "", declared=3),
        "unary stream has 3 bytes; 1 of 10 indices need no more than 2",
    ),
    "grouped low": (grouped(2, "03", "03", ""), "1 bytes are needed for the stream of low bits, but only 0"),
    "grouped low padding": (grouped(2, "02", "03", "10"), "stream of low bits has non-zero padding after its 4 bits"),
    "grouped gap": (grouped(1, "04", "02", "00"), "A gap between indices is larger than the vector's dimension 10"),
    "grouped sum": (grouped(2, "03", "03", "3f"), "gaps between indices add up to more than the vector's dimension 10"),
    "grouped range": (grouped(1, "04", "01", "0a"), "Index 10 lies outside a vector of dimension 10"),
    "block": (
        payload(4, 1, 3, struct.pack("<Bq", 17, 0)),
        "blocks of 131072 is not possible; blocks are powers of two up to",
    ),
    "rotation": (payload(4, 1, 3, b"\1"), "9 bytes are needed for the block and key of a rotation, but only 1"),
    "rotated values": (payload(4, 1, 3, struct.pack("<Bq", 2, 0), ONE * 3), "16 bytes are needed for 4 float32 values"),
    "rotated float64": (payload(4, 4, 1, struct.pack("<Bqd", 0, 0, 1.0)), "values of a rotation cannot be float64"),
    "rotated type": (payload(4, 8, 1, struct.pack("<Bq", 0, 0)), "Unknown value type code 8"),
    "large rotated": (
        payload(4, 1, 1, struct.pack("<Bqf", 0, 0, 2.0**40)),
        "The values of a rotation must be smaller than 1.09951e.12 in magnitude; one is 1.09951e.12",
    ),
    "low-rank type": (payload(5, 2, 3), "A low-rank vector has values of type 2; only 1 .float32. is allowed"),
    "rank": (low_rank(6, 0, [(2, 3)], 5), "Rank 0 cannot be sent; ranks are 1 to 255"),
    "shapes": (
        payload(5, 1, 3, struct.pack("<BI", 1, 2**32 - 1)),
        "34359738360 bytes are needed for 4294967295 shapes",
    ),
    "rows": (low_rank(6, 1, [(0, 3), (6, 0)], 9), "A matrix without rows cannot be sent by its factors"),
    "size": (low_rank(7, 1, [(2, 3)], 5), "shapes of a low-rank vector have 6 entries; its dimension is 7"),
    "factors": (low_rank(6, 1, [(2, 3)], 4), "12 bytes are needed for 3 numbers of a low-rank vector, but only 8"),
    "large factors": (low_rank(6, 1, [(2, 3)], 5, 2.0**40), "Factors must be smaller than 1.09951e.12"),
    "relay type": (relay(1, 1.0, inner(1), values=1), "so the byte must be 0; it is 1"),
    "relay of none": (relay(1, 1.0), "A relay holds no payloads"),
    "relay count": (relay(1, 1.0, inner(1), count=2), "6 bytes are needed for the head of a payload, but only 0"),
    "relay dim": (relay(2, 1.0, inner(1)), "A relay of dimension 2 holds a vector of dimension 1"),
    "relay larger": (relay(1, 1.0, inner(2)), "A vector of dimension 2 is too large; at most 1 is accepted here"),
    "relay of relays": (
        relay(1, 1.0, struct.pack("<BBI", 6, 0, 1)),
        "There can be no relay here; relays come down from the server, and hold none themselves",
    ),
    "factor": (relay(1, 2.0**16, inner(1)), "The factor of a relay must be smaller than 65536 in magnitude"),
    "no factor": (relay(1, float("nan"), inner(1)), "The factor of a relay must be smaller than 65536"),
    "large relay": (relay(1, 1.0, inner(1, 2.0**40)), "The numbers in a relay must be smaller than 1.09951e.12"),
}

GOOD = {
    "Huffman": huffman(3, "1100", "02"),
    "one codeword": huffman(3, "0100", "00"),
    "powers": powers(2, 9, 8, 0, "09", "01"),
    "grouped": grouped(2, "02", "03", "0d"),
    "low rank": low_rank(6, 1, [(2, 3)], 5),
    "relay": relay(2, 1.0, inner(2), inner(2)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bytes(name: str) -> None:
    data, sentence = BAD[name]
    with pytest.raises(WireError, match=sentence):
        decode(data)


@pytest.mark.parametrize("name", GOOD)
def test_the_frames_that_the_bad_ones_were_made_from_are_good(name: str) -> None:
    decode(GOOD[name])


CODES, SCALE = torch.zeros(4, dtype=torch.uint8), torch.ones(1)
FACTORS = (torch.ones(2), torch.ones(3), torch.ones(0))
UNSENDABLE: dict[str, tuple[Payload, str]] = {
    "table": (Dense(Levels(CODES, SCALE, "uniform3")), "Unknown table of levels 'uniform3'; allowed are sign, ternary"),
    "code": (Dense(Levels(CODES + 15, SCALE, "uniform4")), "Code 15 is none of the 15 that there are levels for"),
    "code type": (
        Dense(Levels(CODES.long(), SCALE, "sign")),
        "Codes of type torch.int64 cannot be sent; they must be uint8",
    ),
    "scales": (Dense(Levels(CODES, SCALE, "sign", 2)), r"scales for 4 codes in blocks of 2 must be float32 \(2,\)"),
    "scale type": (Dense(Levels(CODES, SCALE.double(), "sign")), "must be float32 .*; they are torch.float64"),
    "scale": (Dense(Levels(CODES, SCALE * 2.0**125, "sign")), "Scales must be smaller than"),
    "infinite scale": (Dense(Levels(CODES, SCALE / 0, "sign")), "Scales must be smaller than .* one is inf"),
    "bits": (Dense(LevelTables(CODES, torch.ones(1, 32), 5)), "Tables of levels for 5 bits are not allowed"),
    "tables": (Dense(LevelTables(CODES, torch.ones(1, 4), 1)), r"must be float32 \(1, 2\)"),
    "infinite level": (Dense(LevelTables(CODES, torch.ones(1, 2) / 0, 1)), "Value number 0 of 2 is not finite"),
    "power": (
        Dense(Powers(torch.tensor([1, 255], dtype=torch.int16))),
        "Code 255 at entry 1 stands for no power of two",
    ),
    "power type": (Dense(Powers(torch.tensor([1]))), "Codes of type torch.int64 cannot be sent as powers of two"),
    "counts": (Sparse(Levels(CODES, SCALE, "sign"), torch.arange(3), 9), "4 values and 3 indices"),
    "rotation": (
        Rotated(torch.ones(5), torch.tensor(0), 5, 4),
        "rotation of 5 entries in blocks of 4 has 8 values, not 5",
    ),
    "rank": (LowRank(*FACTORS, ((2, 3),), 0), "Rank 0 cannot be sent"),
    "matrix": (LowRank(*FACTORS, ((2, 0),), 1), "matrix without rows or columns"),
    "factors": (LowRank(*FACTORS, ((2, 3), 1), 1), r"have \[2, 3, 0\] entries; \[2, 3, 1\] are needed"),
    "factor type": (LowRank(*(x.half() for x in FACTORS), ((2, 3),), 1), "must be float32"),
    "large factors": (LowRank(FACTORS[0] * 1e13, *FACTORS[1:], ((2, 3),), 1), "Factors must be smaller than"),
    "relay factor": (Relay(Dense(torch.ones(2, 3)), 1e6), "The factor of a relay must be smaller than 65536"),
    "large relay": (Relay(Dense(torch.ones(2, 3) * 1e13), 1.0), "The numbers in a relay must be smaller than"),
    "relay of none": (Relay(Dense(torch.ones(0, 3)), 1.0), "A relay of 0 payloads cannot be sent; 1 to 65535"),
}


@pytest.mark.parametrize("name", UNSENDABLE)
def test_unsendable_payloads(name: str) -> None:
    wrong, sentence = UNSENDABLE[name]
    with pytest.raises(WireError, match=sentence):
        wrong.encode()


def test_a_relay_has_no_rows_and_its_rows_are_no_payload() -> None:
    relay_ = Relay.of([Dense(torch.ones(3)), Dense(torch.ones(3).half())], 0.5)
    with pytest.raises(WireError, match="it has no rows"):
        relay_.rows()
    with pytest.raises(WireError, match=r"leading axes \(2,\) cannot be encoded as one"):
        relay_.parts.encode()
    with pytest.raises(WireError, match="cannot be added to one vector"):
        relay_.parts.add_to(torch.zeros(3))
    assert relay_.parts.dense().shape == (2, 3)
    assert relay_.parts.largest() == 1.0
