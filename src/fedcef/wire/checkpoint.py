"""Named tensors and a few numbers as one block of bytes that tells whether it is whole.

    4   magic "FCSL"
    u8  version 2
    u32 length of the text;  u64 length of the tensors with their padding
    …   text, JSON: the header, and every tensor's name, type and shape
    u32 CRC-32 of everything before
    …   tensors, little-endian, each at a multiple of 64
    u32 CRC-32 of everything before

Client states, snapshots and sums are kept in it.  A client reads and writes its state, six vectors for FedCEF, in every
round; so the tensors are copied once, and the checksum is one that runs at the speed of memory.  JSON and raw numbers
cannot carry code.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.core.errors import RunError

MAGIC, VERSION = b"FCSL", 2
_FIELDS = struct.Struct("<4sBIQ")
_CRC = struct.Struct("<I")
_ALIGNED = 64

Block = NDArray[np.uint8]


class DamagedError(RunError):
    """Bytes on a disk that are not what was once written there."""


def seal(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> memoryview:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    kinds = [[name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in plain.items()]
    text = json.dumps({"header": header, "tensors": kinds}, sort_keys=True).encode()
    begin = _FIELDS.size + len(text) + _CRC.size
    starts, end = _places(begin, (tensor.nbytes for tensor in plain.values()))
    block = np.empty(end + _CRC.size, np.uint8)
    data = block.data
    head = _FIELDS.pack(MAGIC, VERSION, len(text), end - begin) + text
    data[:begin] = head + _CRC.pack(zlib.crc32(head))
    ended = begin
    for tensor, start in zip(plain.values(), starts, strict=True):
        data[ended:start] = bytes(start - ended)
        _view(block, start, tensor.dtype, tensor.shape).copy_(tensor)
        ended = start + tensor.nbytes
    data[end:] = _CRC.pack(zlib.crc32(data[:end]))
    return data


def unseal(block: Block) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors, which lie in the given block; or an error for anything that `seal` did not write."""
    data = block.data
    text, size = _lengths(data)
    begin = _FIELDS.size + text + _CRC.size
    if len(data) != begin + size + _CRC.size:
        raise DamagedError("It is not as long as it says.")
    if _CRC.unpack_from(data, begin + size) != (zlib.crc32(data[: -_CRC.size]),):
        raise DamagedError("Its checksum does not fit its content.")
    content = json.loads(bytes(data[_FIELDS.size : begin - _CRC.size]))
    kinds = [(name, getattr(torch, dtype), shape) for name, dtype, shape in content["tensors"]]
    starts, _ = _places(begin, (dtype.itemsize * math.prod(shape) for _, dtype, shape in kinds))
    tensors = {name: _view(block, at, dtype, shape) for (name, dtype, shape), at in zip(kinds, starts, strict=True)}
    return content["header"], tensors


def read(path: Path) -> Block:
    return np.fromfile(path, np.uint8)


def header_of(path: Path) -> dict[str, Any]:
    """The header alone; whether the rest is whole, only `unseal` tells."""
    with path.open("rb") as file:
        fields = file.read(_FIELDS.size)
        text = file.read(_lengths(fields)[0])
        if file.read(_CRC.size) != _CRC.pack(zlib.crc32(fields + text)):
            raise DamagedError("The checksum of its header does not fit.")
    header: dict[str, Any] = json.loads(text)["header"]
    return header


def _lengths(data: bytes | memoryview) -> tuple[int, int]:
    """Of text and tensors."""
    if len(data) < _FIELDS.size:
        raise DamagedError(f"It has {len(data)} bytes, which is too short.")
    magic, version, text, size = _FIELDS.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise DamagedError(f"It begins with {magic!r} and version {version}, not with {MAGIC!r} and {VERSION}.")
    return text, size


def _places(begin: int, sizes: Iterable[int]) -> tuple[list[int], int]:
    """Where tensors of these sizes begin, after a text, and where the last one ends."""
    starts, end = [], begin
    for size in sizes:
        starts.append(-(-end // _ALIGNED) * _ALIGNED)
        end = starts[-1] + size
    return starts, end


def _view(block: Block, start: int, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """A tensor that lies in a block."""
    place = block[start : start + dtype.itemsize * math.prod(shape)]
    return torch.from_numpy(place).view(dtype).view(tuple(shape))
