"""Forms and value types of other packages: registered, read back, refused, and safe against bytes from an enemy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcef.core.rng import round_key
from fedcef.wire import (
    Dense,
    FrameKind,
    Payload,
    Reader,
    Relay,
    Sparse,
    Values,
    WireError,
    decode,
    encode,
    frame_nbytes,
    register_form,
    register_value_type,
)
from fedcef.wire.forms import registry as forms
from fedcef.wire.values import registry as value_types

from .samples import decoded_part, frame, part
from .test_hostile import mutated, peak_of_decoding

KEY = round_key(0, 0, torch.arange(3))
X = torch.linspace(-2, 2, 33).repeat(3, 1)


def example() -> dict[str, Any]:
    """The names that the example on the page defines."""
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text("utf-8")
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    assert sum(bool(line) for line in found[1].splitlines()) <= 40  # lines that are not blank
    names: dict[str, Any] = {"__name__": __name__}
    exec(found[1], names)
    return names


COMPRESSOR = example()["Sixteenths"]()


@dataclass(frozen=True, eq=False)
class Tenths(Values):
    """Numbers of tenths in one byte each."""

    tenths: Tensor  # (..., k) int8

    code = 201

    @property
    def shape(self) -> torch.Size:
        return self.tenths.shape

    def dense(self) -> Tensor:
        return self.tenths.float() / 10

    def nbytes(self) -> Tensor:
        return self.each(len(PACKAGE) + self.shape[-1])

    def each(self, size: int) -> Tensor:
        return torch.full(self.shape[:-1], size)

    def rows(self) -> list[Values]:
        return [Tenths(row) for row in self.tenths.unbind()]

    def encode(self) -> bytes:
        return PACKAGE + bytes(self.tenths.numpy().tobytes())

    @classmethod
    def read(cls, reader: Reader, count: int) -> Tenths:
        return cls(torch.from_numpy(np.frombuffer(reader.take(count, "tenths"), np.int8).copy()))


PACKAGE = register_value_type(201, Tenths.read, package="some.tenths")


def assert_round_trip(payload: Payload) -> None:
    data = encode({"c": payload}, FrameKind.DOWN, 0)
    assert len(data) == int(frame_nbytes({"c": payload}))
    got = decode(data).message["c"]
    assert torch.equal(got.dense(), payload.dense())
    assert encode({"c": got}, FrameKind.DOWN, 0) == data


def test_the_page_s_compressor_goes_through_the_wire() -> None:
    stack = COMPRESSOR.compress(X, KEY)
    assert float((stack.dense() - X).abs().max()) <= 1 / 32
    assert stack.nbytes().tolist() == [len(row.encode()) for row in stack.rows()]
    for row in stack.rows():
        assert_round_trip(row)
    assert_round_trip(Relay(stack, 0.5))
    assert stack.rows()[0].encode().startswith(b"\xc8\0\x21\0\0\0\x0asixteenths")


def test_values_of_another_package_in_any_payload() -> None:
    values = Tenths(torch.tensor([1, -20, 127], dtype=torch.int8))
    assert_round_trip(Dense(values))
    assert_round_trip(Sparse(values, torch.tensor([0, 5, 8]), 9))
    assert Dense(values).encode().startswith(b"\1\xc9\3\0\0\0\x0bsome.tenths\1")
    assert Dense(values).largest() == pytest.approx(12.7)


def test_a_reader_without_the_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    form, values = COMPRESSOR.compress(X[0], KEY), Dense(Tenths(torch.ones(3, dtype=torch.int8)))
    sent = [encode({"c": payload}, FrameKind.DOWN, 0) for payload in (form, values, Relay.of([form], 1.0))]
    monkeypatch.setattr(forms, "_OTHERS", type(forms._OTHERS)("Form"))
    monkeypatch.setattr(value_types, "_OTHERS", type(value_types._OTHERS)("Value type"))
    sentence = "{} is not one of fedcef's but belongs to the package '{}', which is not imported here; import it before"
    for data, who in zip(sent, [("Form 200", "sixteenths"), ("Value type 201", "some.tenths")] * 2, strict=False):
        with pytest.raises(WireError, match=f"Part 'c': {sentence.format(*who)}"):
            decode(data)


@pytest.mark.parametrize("register", [register_form, register_value_type])
def test_what_cannot_be_registered(register: Any) -> None:
    for number in (0, 1, 6, 7, 191, 256, -1):
        with pytest.raises(WireError, match=f"{number} cannot be registered by mine; other packages take 192 to 255"):
            register(number, Tenths.read, package="mine")
    for name in ("", "my-package", "a..b", "x" * 256):
        with pytest.raises(WireError, match=r"could be imported|1 to 255 are allowed"):
            register(255, Tenths.read, package=name)


def test_a_number_is_taken_by_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_types, "_OTHERS", type(value_types._OTHERS)("Value type"))
    for package in ("one", "other", "one"):  # the same number for two packages, and a module that is loaded again
        register_value_type(200, Tenths.read, package=package)
    with pytest.raises(WireError, match=r"Value type 200 of one is taken by .*Tenths.read; take another number"):
        register_value_type(200, lambda *_: Tenths(torch.ones(1)), package="one")


def head(number: int, dim: int, name: bytes, *rest: bytes) -> bytes:
    return bytes([number, 0]) + dim.to_bytes(4, "little") + bytes([len(name)]) + name + b"".join(rest)


def test_bytes_that_do_not_keep_to_the_form() -> None:
    for payload, sentence in (
        (head(200, 3, b"")[:-1], "1 bytes are needed for a package's name length, but only 0"),
        (head(200, 3, b""), "A package has an empty name"),
        (head(200, 3, b"\xff"), "package name .* is not valid UTF-8"),
        (head(200, 2**31, b"sixteenths", bytes(9)), "2147483648 bytes are needed for steps, but only 9"),
    ):
        with pytest.raises(WireError, match=sentence):
            decode(frame(part(payload)))


def test_whatever_a_reader_raises_is_a_wire_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_OTHERS", type(forms._OTHERS)("Form"))
    monkeypatch.setattr(value_types, "_OTHERS", type(value_types._OTHERS)("Value type"))
    register_form(192, lambda reader, head: Dense(torch.ones(head.dim + 1)), package="long")
    register_form(193, lambda reader, head: 1 / 0, package="broken")  # type: ignore[arg-type,return-value]
    register_form(194, lambda reader, head: reader.take(-5, "backwards"), package="back")  # type: ignore[arg-type,return-value]
    register_value_type(192, lambda reader, count: Tenths(torch.ones(count + 1)), package="long")
    with pytest.raises(WireError, match="Form 192 gave a vector of dimension 4; its head says 3"):
        decoded_part(head(192, 3, b"long"))
    with pytest.raises(WireError, match="Form 193 of broken could not be read: ZeroDivisionError") as caught:
        decoded_part(head(193, 3, b"broken"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)  # for whoever looks for the mistake
    with pytest.raises(WireError, match="-5 bytes are needed for backwards"):
        decoded_part(head(194, 3, b"back"))
    with pytest.raises(WireError, match=r"Value type 192 gave values of shape \(4,\); 3 were announced"):
        decoded_part(b"\1\xc0\3\0\0\0\4long")


def test_mutated_frames_of_another_package() -> None:
    random, valid = np.random.default_rng(0), 0
    values = Dense(Tenths(torch.ones(50, dtype=torch.int8)))
    frames = [encode({"c": payload}, FrameKind.DOWN, 0) for payload in (COMPRESSOR.compress(X[0], KEY), values)]
    for _ in range(1000):
        data = mutated(frames[random.integers(2)], frames[random.integers(2)], random)
        try:
            got = decode(data)
        except WireError:
            continue
        valid += 1
        encode(got.message, got.kind, got.round)
    assert 100 < valid < 500
    huge = frame(part(head(200, 2**31, b"sixteenths", bytes(100))))
    assert peak_of_decoding(huge) <= 16 * len(huge) + 2**20
