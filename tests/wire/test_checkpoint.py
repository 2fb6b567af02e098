"""Checkpoints: the bytes that they always had, and damage of any kind."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.wire.checkpoint import (
    CHECKPOINT,
    DamagedError,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
    read_header,
    write_checkpoint,
)

HEADER = {"round": 7, "note": None}
TENSORS = {
    "integers": torch.arange(3),
    "number": torch.tensor(0.5),
    "none": torch.empty(0, 2),
    "bits": torch.tensor([[True, False]]),
    "half": torch.arange(40.0).bfloat16(),
    "double": torch.arange(7.0).double().view(7, 1),
}


def test_the_bytes() -> None:
    text = b'{"header": {"round": 7}, "tensors": [["x", "int16", [2]], ["y", "float32", []]]}'
    head = b"FCSL\2" + len(text).to_bytes(4, "little") + (27 + 64 + 4).to_bytes(8, "little") + text
    content = head + zlib.crc32(head).to_bytes(4, "little")  # 101 bytes; tensors begin at 128 and 192
    content = content.ljust(128, b"\0") + b"\1\0\2\0"
    content = content.ljust(192, b"\0") + b"\0\0\0\x3f"
    found = encode_checkpoint({"round": 7}, {"x": torch.tensor([1, 2], dtype=torch.int16), "y": torch.tensor(0.5)})
    assert bytes(found) == content + zlib.crc32(content).to_bytes(4, "little")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.bin"
    write_checkpoint(path, HEADER, TENSORS, Disk())
    header, tensors = read_checkpoint(path)
    assert header == read_header(path) == HEADER
    assert list(tensors) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].shape == tensor.shape
        assert torch.equal(tensors[name], tensor)
        tensors[name].zero_()  # it is writable


def test_damage_anywhere_is_noticed_and_named(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.bin"
    whole = bytes(encode_checkpoint(HEADER, TENSORS))
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(DamagedError, match=r"snapshot\.bin is damaged: "):
            read_checkpoint(path)
    for wrong in (b"", whole[:5], whole[:-1], whole + b"\0"):
        path.write_bytes(wrong)
        with pytest.raises(DamagedError, match=r"snapshot.bin is damaged: .*bytes"):
            read_checkpoint(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nothing\.bin cannot be read: No such file"):
        read_checkpoint(tmp_path / "nothing.bin")


def test_a_damaged_header_is_noticed_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.bin"
    whole = bytes(encode_checkpoint(HEADER, TENSORS))
    path.write_bytes(whole[:30] + b"?" + whole[31:])
    with pytest.raises(DamagedError, match="checksum of its header"):
        read_header(path)
    path.write_bytes(whole[:-1] + b"?")
    assert read_header(path) == HEADER


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        "{}",
        json.dumps({"header": {}, "tensors": [["x", "nn", [1]]]}),
        json.dumps({"header": {}, "tensors": [["x", "float32", [10**9]]]}),
        json.dumps({"header": {}, "tensors": [["x", "float32", [-2]]]}),
        json.dumps({"header": {}, "tensors": [["x", "float32", "?"]]}),
        json.dumps({"tensors": []}),
        "[" * 10_000,
    ],
)
def test_a_text_that_lies_under_a_right_checksum(text: str) -> None:
    data = CHECKPOINT.pack([], [text.encode(), bytes(200)])
    with pytest.raises(DamagedError, match="does not describe its tensors"):
        decode_checkpoint(np.frombuffer(bytearray(data), np.uint8))
