"""Frames that an honest encoder refuses to write, and replies that an honest client does not send."""

import struct
import zlib

import torch

from fedcef.deployment import RunId
from fedcef.deployment.messages import Result, decode_reply
from fedcef.wire import Dense, FrameKind, Relay, decode, encode


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


def forged_reply(kind, data, contexts):
    """A reply with another run or round, or with numbers that cannot be."""
    reply = decode_reply(data, len(data))
    changes = {
        "reply of another run": {"run": RunId(reply.run.settings, b"another.")},
        "reply of another round": {"round": reply.round + 1},
    }
    if kind in changes or not isinstance(reply, Result):
        return type(reply)(**{**reply.__dict__, **changes.get(kind, {})}).encode()
    message = decode(reply.frame, contexts=contexts).message
    factor = {"huge numbers in reply": 1e30, "large norm in reply": 1e6, "NaN in reply": 1.0}[kind]
    large = {name: Dense(factor * (payload.dense() + 1.0)) for name, payload in message.items()}
    frame = encode(large, FrameKind.UP, reply.round)
    return Result(**{**reply.__dict__, "frame": with_nan(frame) if kind == "NaN in reply" else frame}).encode()
