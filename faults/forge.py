"""What faults and bad clients make of messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deployment.forged import with_nan
from fedcef.deployment import RunId
from fedcef.deployment.messages import Result
from fedcef.wire import Dense, FrameKind, decode, encode


def cut(data: bytes, random: np.random.Generator) -> bytes:
    return data[: int(random.integers(len(data)))]


def flipped(data: bytes, random: np.random.Generator) -> bytes:
    """The data with one to three bits changed."""
    changed = bytearray(data)
    for at in random.choice(len(changed), size=int(random.integers(1, 4)), replace=False):
        changed[at] ^= 1 << int(random.integers(8))
    return bytes(changed)


def forged(kind: str, result: Result, random: np.random.Generator, clients: int) -> bytes:
    """What a client sends instead of its result; the envelope is whole."""
    changes = {
        "reply of another run": lambda: {"run": RunId(result.run.settings, random.bytes(8))},
        "reply of another round": lambda: {"round": result.round + 1},
        "reply as another client": lambda: {"client": (result.client + 1) % clients},
        "cut frame": lambda: {"frame": cut(result.frame, random)},
        "flip frame": lambda: {"frame": flipped(result.frame, random)},
        "NaN in reply": lambda: {"frame": with_nan(_times(1.0, result))},
        "huge numbers in reply": lambda: {"frame": _times(1e30, result)},
        "large norm in reply": lambda: {"frame": _times(1e6, result)},
    }
    return replace(result, **changes[kind]()).encode()


def _times(factor: float, result: Result) -> bytes:
    message = decode(result.frame).message
    large = {name: Dense(factor * (payload.dense() + 1.0)) for name, payload in message.items()}
    return encode(large, FrameKind.UP, result.round)
