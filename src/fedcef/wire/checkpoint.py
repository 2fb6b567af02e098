"""Checkpoints: named tensors and a few numbers as one block of bytes that tells whether it is whole.

Everything that is resumed from is kept in this form: a run's snapshots, a client's state, the server's sums.  It is an
envelope (envelope.py) with two parts:

    4   magic "FCSL"
    u8  version 2
    u32 length of the text;  u64 length of the tensors with their padding
    …   text, JSON: the header, and every tensor's name, type and shape
    u32 CRC-32 of everything before
    …   tensors, little-endian, each at a multiple of 64
    u32 CRC-32 of everything before

A deployed client reads and writes its state, six vectors for FedCEF, in every round; so tensors are copied once into
the block, not at all out of it, and the checksum is one that runs at the speed of memory.  JSON and raw numbers cannot
carry code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.core.disk import Disk
from fedcef.core.errors import RunError
from fedcef.wire.envelope import CHECKSUM_SIZE, Envelope, checksum


class DamagedError(RunError):
    """Bytes on a disk that are not what was once written there."""


CHECKPOINT = Envelope("checkpoint", b"FCSL", 2, fields="", lengths="IQ", error=DamagedError, head_checked=True)
_ALIGNED = 64

Header: TypeAlias = dict[str, Any]
Block: TypeAlias = NDArray[np.uint8]


def write_checkpoint(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor], disk: Disk) -> None:
    """Keep named tensors and a JSON-able header in a file: at any moment it is the old one or the new one, whole."""
    disk.replace(path, encode_checkpoint(header, tensors))


def read_checkpoint(path: Path) -> tuple[Header, dict[str, Tensor]]:
    """What `write_checkpoint` wrote, in memory of its own; a `DamagedError` if the file is anything else."""
    try:
        return decode_checkpoint(np.fromfile(path, np.uint8))
    except DamagedError as error:
        raise DamagedError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from None


def read_header(path: Path) -> Header:
    """The header of a file alone; whether the tensors are whole, only `read_checkpoint` tells."""
    with path.open("rb") as file:
        head = file.read(CHECKPOINT.head_size)
        text = file.read(CHECKPOINT.read_head(head).lengths[0])
        if file.read(CHECKSUM_SIZE) != checksum(head + text):
            raise DamagedError("The checksum of its header does not fit.")
    header: Header = json.loads(text)["header"]
    return header


def encode_checkpoint(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> memoryview:
    """The bytes of a checkpoint."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    kinds = [[name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in plain.items()]
    text = json.dumps({"header": header, "tensors": kinds}, sort_keys=True).encode()
    begin = CHECKPOINT.head_size + len(text) + CHECKSUM_SIZE
    starts, end = _places(begin, (tensor.nbytes for tensor in plain.values()))
    block = np.empty(end + CHECKSUM_SIZE, np.uint8)
    data = block.data
    head = CHECKPOINT.head([], [len(text), end - begin]) + text
    data[:begin] = head + checksum(head)
    ended = begin
    for tensor, start in zip(plain.values(), starts, strict=True):
        data[ended:start] = bytes(start - ended)
        _view(block, start, tensor.dtype, tensor.shape).copy_(tensor)
        ended = start + tensor.nbytes
    data[end:] = checksum(data[:end])
    return data


def decode_checkpoint(block: Block) -> tuple[Header, dict[str, Tensor]]:
    """Header and tensors, which lie in the given block; a `DamagedError` for anything that is no checkpoint."""
    _, (text, _) = CHECKPOINT.unpack(block.data)
    try:
        content = json.loads(bytes(text))
        kinds = [(name, _dtype(dtype), shape) for name, dtype, shape in content["tensors"]]
        starts, _ = _places(
            CHECKPOINT.head_size + len(text) + CHECKSUM_SIZE,
            (dtype.itemsize * math.prod(shape) for _, dtype, shape in kinds),
        )
        tensors = {name: _view(block, at, dtype, shape) for (name, dtype, shape), at in zip(kinds, starts, strict=True)}
        return content["header"], tensors
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DamagedError(f"Its text does not describe its tensors ({error}).") from None


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"unknown type {name!r}")
    return dtype


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
