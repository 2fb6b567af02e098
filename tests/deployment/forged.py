"""Frames that an honest encoder refuses to write."""

import struct
import zlib

import torch

from fedcef.wire import Dense, Relay


def with_nan(frame: bytes) -> bytes:
    """A frame whose last number is not one, with a checksum that fits."""
    content = frame[:-8] + struct.pack("<f", float("nan"))
    return content + struct.pack("<I", zlib.crc32(content))


def of_kind(kind: int, frame: bytes) -> bytes:
    """The frame as one of another kind, with a checksum that fits."""
    content = frame[:5] + bytes([kind]) + frame[6:-4]
    return content + struct.pack("<I", zlib.crc32(content))


def relayed(dim: int, number: int = 1) -> dict[str, Relay]:
    """A message that passes on so many vectors of zeros."""
    return {"delta": Relay.of([Dense(torch.zeros(dim))] * number, 1.0)}
