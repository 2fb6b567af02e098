"""Every way in which bytes, or a message, can be wrong, and the sentence that says so."""

from __future__ import annotations

import struct

import pytest
import torch

from fedcef.core.errors import FedcefError
from fedcef.wire import Dense, FrameKind, Nonzeros, Payload, Seeded, Sparse, WireError, cast, decode, encode

from .samples import every, frame, part, repaired

GOOD = frame(part(Dense(torch.ones(3)).encode()))


def head(form: int = 2, values: int = 1, dim: int = 10) -> bytes:
    return struct.pack("<BBI", form, values, dim)


def kept(count: int, index_section: bytes, *, dim: int = 10) -> bytes:
    """A frame with a sparse float16 payload of ones."""
    values = struct.pack("<I", count) + b"\x00\x3c" * count
    return frame(part(head(2, 2, dim) + values + index_section))


def rice(parameter: int, unary: str, low: str = "", *, declared: int | None = None) -> bytes:
    stream = bytes.fromhex(unary)
    return (
        struct.pack("<BBI", 2, parameter, len(stream) if declared is None else declared) + stream + bytes.fromhex(low)
    )


BAD_BYTES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "19 bytes are needed for the frame header, but only 0 are left"),
    "half a header": (GOOD[:18], "19 bytes are needed for the frame header, but only 18 are left"),
    "magic": (frame(magic=b"FCEG"), "begin with b'FCEG', not with b'FCEF'"),
    "version": (frame(version=2), "of version 2; only version 1"),
    "kind": (frame(kind=4), "Unknown frame kind 4; allowed are 1 .up., 2 .down. and 3 .state."),
    "kind zero": (frame(kind=0), "Unknown frame kind 0"),
    "cut off": (GOOD[:-1], "cut off: its header says 43 bytes, there are 42"),
    "trailing": (GOOD + b"\0", "followed by other bytes: its header says 43 bytes, there are 44"),
    "too long a body": (frame(extra=2**64 - 1), "cut off: its header says 18446744073709551638 bytes"),
    "checksum": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "checksum does not fit"),
    "damage": (GOOD[:30] + bytes([GOOD[30] ^ 1]) + GOOD[31:], "checksum does not fit"),
    "left over": (frame(part(Dense(torch.ones(3)).encode()), b"ab", count=1), "2 bytes are left over"),
    "missing part": (frame(count=1), "1 bytes are needed for a part's name length, but only 0"),
    "missing name": (frame(b"\x05abc"), "5 bytes are needed for a part's name, but only 3"),
    "empty name": (frame(part(b"", b"")), "empty name; 1 to 255"),
    "UTF-8": (frame(part(b"", b"\xff\xfe")), r"name b'\\xff\\xfe' is not valid UTF-8"),
    "same name": (frame(*[part(Dense(torch.ones(1)).encode())] * 2), "two parts named 'c'"),
    "no head": (frame(part(b"\1\1")), "Part 'c': 6 bytes are needed for the head of a payload, but only 2"),
    "form": (frame(part(head(form=8))), "Part 'c': Unknown payload form 8; allowed are 1 .dense., 2"),
    "value type": (frame(part(head(form=1, values=8))), "Unknown value type code 8; allowed are 1 .float32., 2"),
    "dim": (frame(part(head(dim=2**31 + 1))), "dimension 2147483649 is too large; at most 2147483648"),
    "dense values": (frame(part(head(form=1) + bytes(39))), "40 bytes are needed for 10 float32 values, but only 39"),
    "no count": (frame(part(head() + bytes(3))), "4 bytes are needed for the entry count, but only 3"),
    "count": (frame(part(head() + b"\x0b\0\0\0")), "11 entries cannot be kept of a vector of dimension 10"),
    "seeded count": (frame(part(head(form=3) + b"\x0b\0\0\0")), "11 entries cannot be kept"),
    "sparse values": (
        frame(part(head() + b"\2\0\0\0" + bytes(7))),
        "8 bytes are needed for 2 float32 values, but only 7",
    ),
    "no key": (frame(part(head(form=3) + b"\1\0\0\0" + bytes(11))), "8 bytes are needed for the key, but only 7"),
    "no code": (kept(1, b""), "1 bytes are needed for the index code, but only 0"),
    "code": (kept(1, b"\4"), "Unknown index code 4; allowed are 0 .raw., 1 .bitmap., 2 .Rice. and 3"),
    "raw short": (kept(2, b"\0" + bytes(7)), "8 bytes are needed for the raw indices, but only 7"),
    "raw order": (kept(2, b"\0" + struct.pack("<II", 3, 2)), "raw indices are not strictly ascending"),
    "raw twice": (kept(2, b"\0" + struct.pack("<II", 3, 3)), "raw indices are not strictly ascending"),
    "raw range": (kept(2, b"\0" + struct.pack("<II", 3, 10)), "Index 10 lies outside a vector of dimension 10"),
    "bitmap short": (kept(2, b"\1\3"), "2 bytes are needed for the index bitmap, but only 1"),
    "bitmap fewer": (kept(2, b"\1\1\0"), "The index bitmap holds 1 one-bits where the entry count says 2"),
    "bitmap more": (kept(2, b"\1\7\0"), "The index bitmap holds 3 one-bits where the entry count says 2"),
    "bitmap padding": (kept(2, b"\1\1\4"), "The index bitmap has non-zero padding after its 10 bits"),
    "Rice header": (kept(1, b"\2\0\1\0"), "5 bytes are needed for the Rice header, but only 3"),
    "Rice parameter": (kept(1, rice(32, "01")), "Rice parameter 32 is not allowed; the largest is 31"),
    "unary declared": (kept(1, rice(0, "", declared=2**32 - 1)), "has 4294967295 bytes; 1 of 10 .* no more than 2"),
    "unary short": (kept(1, rice(0, "01", declared=2)), "2 bytes are needed for the unary stream, but only 1"),
    "unary fewer": (kept(2, rice(0, "01")), "The unary stream holds 1 one-bits where the entry count says 2"),
    "unary padding": (kept(2, rice(0, "0700")), "The unary stream holds 3 one-bits where the entry count says 2"),
    "unary goes on": (kept(2, rice(0, "0300")), "unary stream of 2 bytes goes on after its last number"),
    "unary of none": (kept(0, rice(0, "00")), "unary stream of 1 bytes goes on after its last number"),
    "Rice range": (kept(1, rice(0, "0004")), "Index 10 lies outside a vector of dimension 10"),
    "low short": (kept(3, rice(3, "07", "00")), "2 bytes are needed for the stream of low bits, but only 1"),
    "low padding": (kept(1, rice(3, "01", "08")), "The stream of low bits has non-zero padding after its 3 bits"),
    "low range": (kept(2, rice(3, "03", "3f")), "Index 15 lies outside a vector of dimension 10"),
}

NON_FINITE = {1: "0000807f", 2: "007c", 3: "c0ff", 4: "000000000000f87f"}


@pytest.mark.parametrize("name", BAD_BYTES)
def test_bad_bytes(name: str) -> None:
    data, sentence = BAD_BYTES[name]
    with pytest.raises(WireError, match=sentence):
        decode(data)


def test_the_frames_that_the_bad_ones_were_made_from_are_good() -> None:
    decode(GOOD)
    for section in (b"\0" + struct.pack("<II", 3, 9), b"\1\3\0", rice(0, "03"), rice(3, "03", "11")):
        decode(kept(2, section))


@pytest.mark.parametrize("code", NON_FINITE)
def test_non_finite_values_are_not_accepted(code: int) -> None:
    value = bytes.fromhex(NON_FINITE[code])
    data = frame(part(head(form=1, values=code, dim=2) + bytes(len(value)) + value))
    with pytest.raises(WireError, match="Value number 1 of 2 is not finite"):
        decode(data)


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_non_finite_values_are_not_sent(name: str, bad: float) -> None:
    values = cast(torch.tensor([1.0, bad]), name)
    key = torch.tensor(0)
    for payload in (Dense(values), Nonzeros(values), Sparse(values, torch.arange(2), 90), Seeded(values, key, 9)):
        with pytest.raises(WireError, match="Value number 1 of 2 is not finite"):
            payload.encode()


def test_float16_overflow_is_noticed() -> None:
    with pytest.raises(WireError, match="not finite"):
        Dense(cast(torch.tensor([1e6]), "float16")).encode()


def test_max_dim() -> None:
    assert decode(GOOD, max_dim=3).message["c"].dim == 3
    with pytest.raises(WireError, match="dimension 3 is too large; at most 2 is accepted"):
        decode(GOOD, max_dim=2)


@pytest.mark.parametrize("kind", every())
def test_a_stack_is_not_sent_as_one(kind: str) -> None:
    with pytest.raises(WireError, match=r"leading axes \(2,\) cannot be encoded as one; take it apart with rows"):
        encode({"c": every((2,))[kind]}, FrameKind.UP, 0)


UNSENDABLE: dict[str, tuple[Payload, str]] = {
    "descending": (Sparse(torch.ones(2), torch.tensor([2, 1]), 9), "not strictly ascending"),
    "twice": (Sparse(torch.ones(2), torch.tensor([1, 1]), 9), "not strictly ascending"),
    "negative": (Sparse(torch.ones(2), torch.tensor([-1, 1]), 9), "negative or not"),
    "outside": (Sparse(torch.ones(2), torch.tensor([1, 9]), 9), "Index 9 lies outside a vector of dimension 9"),
    "unequal": (Sparse(torch.ones(2), torch.tensor([1]), 9), "2 values and 1 indices"),
    "too many": (Seeded(torch.ones(2), torch.tensor(1), 1), "2 entries cannot be kept of a vector of dimension 1"),
    "too large": (Sparse(torch.ones(1), torch.tensor([1]), 2**32), "dimension 4294967296 cannot be sent"),
    "integers": (Dense(torch.ones(2, dtype=torch.int32)), "torch.int32 cannot be sent; allowed are float32, float16"),
}


@pytest.mark.parametrize("name", UNSENDABLE)
def test_unsendable_payloads(name: str) -> None:
    payload, sentence = UNSENDABLE[name]
    with pytest.raises(WireError, match=sentence):
        payload.encode()


def test_unsendable_messages() -> None:
    one = Dense(torch.ones(1))
    with pytest.raises(WireError, match="Round 4294967296 cannot be sent"):
        encode({}, FrameKind.UP, 2**32)
    with pytest.raises(WireError, match="Round -1 cannot be sent"):
        encode({}, FrameKind.UP, -1)
    with pytest.raises(WireError, match="Part name '' has 0 bytes; 1 to 255"):
        encode({"": one}, FrameKind.UP, 0)
    with pytest.raises(WireError, match="has 256 bytes; 1 to 255"):
        encode({"ü" * 128: one}, FrameKind.UP, 0)
    with pytest.raises(WireError, match="256 parts cannot be sent; at most 255"):
        encode({str(i): one for i in range(256)}, FrameKind.UP, 0)
    with pytest.raises(WireError, match="Unknown value type 'float8'; allowed are float32"):
        cast(torch.ones(1), "float8")
    assert len(decode(encode({str(i): one for i in range(255)}, FrameKind.UP, 0)).message) == 255


def test_the_error_is_one_of_the_project_s() -> None:
    assert issubclass(WireError, FedcefError)
    with pytest.raises(FedcefError):
        decode(repaired(GOOD + b"\0"))
