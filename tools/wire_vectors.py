"""The test vectors of the wire format: frames in hexadecimal digits, and what a decoder must make of them.

    python tools/wire_vectors.py             write docs/vectors/*.json
    python tools/wire_vectors.py --check     leave with 1 if they are not what would be written

docs/wire.md describes the files, tests/wire/vector_cases.py has the frames.  The files are meant for decoders in other
languages; tests/wire/test_vectors.py holds this package's decoder to them, and two that were written from the page.
What may never change is in valid.json: a frame that could be read once is read the same for ever.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from torch import Tensor

from fedcef.wire import Payload, Sparse, WireError, encode

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "vectors"
sys.path.insert(0, str(ROOT / "tests"))

from wire.vector_cases import Case, refused, valid  # noqa: E402


def vector_of(payload: Payload) -> dict[str, Any]:
    """What a payload decodes to, in hexadecimal digits; of a long vector only the entries that are not zero."""
    if payload.dim > 10_000:
        assert isinstance(payload, Sparse)
        return {"type": "binary32", "indices": payload.indices.tolist(), "values": hex_of(payload.values)}  # type: ignore[arg-type]
    vector = payload.dense()
    return {"type": {4: "binary32", 8: "binary64"}[vector.dtype.itemsize], "vector": hex_of(vector)}


def hex_of(vector: Tensor) -> str:
    """Little-endian numbers, one after the other."""
    array = vector.numpy()
    return str(array.astype(array.dtype.newbyteorder("<")).tobytes().hex())


def described(case: Case) -> dict[str, Any]:
    """A line of the files but for what is expected."""
    told: dict[str, Any] = {"name": case.name, "frame": case.data.hex()}
    if case.contexts:
        told["contexts"] = {name: bytes(context.classes.tolist()).hex() for name, context in case.contexts.items()}
    return told | dict(case.limits)


def valid_line(case: Case) -> dict[str, Any]:
    """A frame and its vectors."""
    got = case.read()
    parts = [{"name": name, "dim": payload.dim, **vector_of(payload)} for name, payload in got.message.items()]
    encoded = encode(got.message, got.kind, got.round, case.contexts) == case.data
    return {**described(case), "encoded": encoded, "kind": int(got.kind), "round": got.round, "parts": parts}


def refused_line(case: Case) -> dict[str, Any]:
    """A frame and what this package says of it."""
    try:
        case.read()
    except WireError as error:
        return {**described(case), "reason": str(error)}
    raise AssertionError(f"{case.name} is not refused")


def files() -> dict[str, str]:
    """The content of both files, a case in a line."""
    lines = {
        "valid.json": [valid_line(case) for case in valid()],
        "refused.json": [refused_line(case) for case in refused()],
    }
    for cases in lines.values():
        assert len({case["name"] for case in cases}) == len(cases), "names are not distinct"
    return {name: "[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n" for name, cases in lines.items()}


def main() -> None:
    """The command."""
    content = files()
    if "--check" in sys.argv[1:]:
        sys.exit(any((FOLDER / name).read_text("utf-8") != text for name, text in content.items()))
    FOLDER.mkdir(exist_ok=True)
    for name, text in content.items():
        (FOLDER / name).write_text(text, "utf-8")
        print(f"{FOLDER / name}: {text.count(chr(10)) - 2} frames, {len(text)} bytes")


if __name__ == "__main__":
    main()
