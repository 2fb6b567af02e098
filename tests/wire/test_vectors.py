"""The published test vectors: read and refused by this package, and by two decoders that were written from the page."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from fedcef.wire import Context, Sparse, WireError, decode, encode

from . import plain, plain_codes, reference

ROOT = Path(__file__).parents[2]
Line = dict[str, Any]
VALID: dict[str, Line] = {
    line["name"]: line for line in json.loads((ROOT / "docs/vectors/valid.json").read_text("utf-8"))
}
REFUSED: dict[str, Line] = {
    line["name"]: line for line in json.loads((ROOT / "docs/vectors/refused.json").read_text("utf-8"))
}


def contexts_of(line: Line) -> dict[str, Context]:
    classes = {name: bytearray.fromhex(digits) for name, digits in line.get("contexts", {}).items()}
    return {name: Context(torch.frombuffer(octets, dtype=torch.uint8)) for name, octets in classes.items()}


def limits_of(line: Line) -> dict[str, int]:
    return {limit: line[limit] for limit in ("max_dim", "max_relayed") if limit in line}


@pytest.mark.parametrize("name", VALID)
def test_what_must_be_read(name: str) -> None:
    line = VALID[name]
    data, contexts = bytes.fromhex(line["frame"]), contexts_of(line)
    got = decode(data, contexts=contexts)
    assert (int(got.kind), got.round, list(got.message)) == (
        line["kind"],
        line["round"],
        [p["name"] for p in line["parts"]],
    )
    for part, payload in zip(line["parts"], got.message.values(), strict=True):
        if "indices" in part:
            assert isinstance(payload, Sparse)
            assert payload.indices.tolist() == part["indices"]
            assert np.asarray(payload.values).tobytes().hex() == part["values"]
            continue
        vector = payload.dense()
        assert vector.dtype == {"binary32": torch.float32, "binary64": torch.float64}[part["type"]]
        assert vector.numpy().tobytes().hex() == part["vector"]
    assert (encode(got.message, got.kind, got.round, contexts) == data) == line["encoded"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_must_be_refused(name: str) -> None:
    line = REFUSED[name]
    with pytest.raises(WireError, match=f"^{re.escape(line['reason'])}$"):
        decode(bytes.fromhex(line["frame"]), contexts=contexts_of(line), **limits_of(line))  # type: ignore[arg-type]


def test_the_files_are_what_the_tool_writes() -> None:
    """If not: python tools/wire_vectors.py.  Lines of valid.json may be added and never changed."""
    for name, content in tool("wire_vectors").files().items():
        assert (ROOT / "docs" / "vectors" / name).read_text("utf-8") == content


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# the decoders from the page


def plainly(line: Line) -> tuple[int, int, dict[str, plain.Vector]]:
    limits = limits_of(line)
    return plain.read_frame(bytes.fromhex(line["frame"]), limits.get("max_dim", 2**31))


def is_here(line: Line) -> bool:
    try:
        plainly(line)
    except plain.NotHere:
        return False
    except plain_codes.Refused:
        pass
    return True


PLAIN = [name for name in VALID if is_here(VALID[name])]
PLAINLY_REFUSED = [name for name in REFUSED if is_here(REFUSED[name])]


@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_decoder_reads_them(name: str) -> None:
    line = VALID[name]
    kind, round_, vectors = plainly(line)
    assert (kind, round_, list(vectors)) == (line["kind"], line["round"], [part["name"] for part in line["parts"]])
    for part, vector in zip(line["parts"], vectors.values(), strict=True):
        assert vector.dim == part["dim"]
        layout = "<d" if part["type"] == "binary64" else "<f"
        assert vector.double == (part["type"] == "binary64")
        if "indices" in part:
            assert vector.indices == part["indices"]
            assert b"".join(struct.pack(layout, x) for x in vector.values).hex() == part["values"]
            continue
        entries = dict(zip(vector.indices, vector.values, strict=True))
        assert b"".join(struct.pack(layout, entries.get(i, 0.0)) for i in range(vector.dim)).hex() == part["vector"]


@pytest.mark.parametrize("name", PLAINLY_REFUSED)
def test_the_plain_decoder_refuses_them(name: str) -> None:
    with pytest.raises(plain_codes.Refused):
        plainly(REFUSED[name])


def test_the_plain_decoder_is_not_let_off() -> None:
    assert len(PLAIN) > 75
    assert len(PLAINLY_REFUSED) > 110


@pytest.mark.parametrize("name", [name for name in VALID if "contexts" not in VALID[name]])
def test_the_reference_decoder_reads_them(name: str) -> None:
    line = VALID[name]
    _, _, parts = reference.read_frame(bytes.fromhex(line["frame"]))
    for part in line["parts"]:
        if "vector" in part:
            got = parts[part["name"]].vector
            assert got.tobytes().hex() == part["vector"]


def test_every_number_of_the_format_occurs() -> None:
    plain_codes.SEEN.clear()
    for name in VALID:
        is_here(VALID[name])
    expected = {
        "form": range(1, 8),
        "value type": range(1, 8),
        "table": range(1, 13),
        "bits": range(1, 5),
        "coding of exponents": range(3),
        **{f"coding of {size} codes": range(2) for size in (2, 3, 4, 8, 15, 16)},
        "coding of 255 codes": range(1),
        "index code": range(4),
    }
    assert {(what, number) for what, numbers in expected.items() for number in numbers} == plain_codes.SEEN


# the page


def test_the_page_s_examples_are_among_them() -> None:
    page = (ROOT / "docs" / "wire.md").read_text("utf-8")
    listings = re.findall(r"```hex\n(.*?)```", page, re.DOTALL)
    shown = ["".join(line.split("#")[0] for line in listing.splitlines()).replace(" ", "") for listing in listings]
    assert shown == [VALID[f"example {number}"]["frame"] for number in range(1, len(shown) + 1)]
    assert len(shown) == 6


def test_the_page_counts_them() -> None:
    page = (ROOT / "docs" / "wire.md").read_text("utf-8")
    assert f"has {len(VALID)} frames that a decoder must read" in page
    assert f"(vectors/refused.json) {len(REFUSED)} that it must refuse" in page
