"""A vector in frames: one for each of its pieces, so that a large model takes no more memory than a small one.

    difference    what is new, compressed; the receiver adds what it decodes, and so does the sender
    whole         every bit of a vector, for who has none

Frames are those of docs/wire.md, with one part.  Whoever decodes one knows how long its vector is, and takes nothing
else; a frame of a stranger's raises `WireError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.compressors import Compressor
from fedcef.core.errors import ProblemError
from fedcef.core.rng import Key, Purpose, data_key
from fedcef.wire import FrameKind, Nonzeros, WireError, decode, encode
from fedcef.wire.forms.nonzeros import EveryBit
from fedcef.wire.frame import FRAME
from fedcef.wire.payload import MODERATE

_PART = "x"
_LARGEST_HALF = 6e4
"""Numbers up to it have a float16."""


def key_of(run: bytes, version: int, piece: int) -> Key:
    """What a compressor draws from: the same for everyone in a round of a run."""
    shared = data_key(int.from_bytes(run, "little"), Purpose.COMPRESSION, version, piece)
    return Key(shared, shared)


def difference(kind: FrameKind, version: int, values: Tensor, compressor: Compressor, key: Key) -> tuple[bytes, Tensor]:
    """A piece of a difference as a frame, and what a receiver makes of it."""
    if not bool(torch.isfinite(values).all()):
        raise ProblemError("The model has numbers that are not finite, which cannot be sent; lower the learning rate.")
    payload = compressor.compress(values, key)
    return encode({_PART: payload}, kind, version), payload.dense().float()


def beginning(version: int, values: Tensor) -> tuple[bytes, Tensor]:
    """A piece of the first model as a frame, in half precision where its numbers allow, and what everyone gets.

    Where it is zero nothing is sent, as for adapters and linear models that begin there.
    """
    half = bool((values.abs() <= _LARGEST_HALF).all())
    payload = Nonzeros(values.half() if half else values)
    return encode({_PART: payload}, FrameKind.DOWN, version), payload.dense().float()


def whole(version: int, values: NDArray[Any]) -> bytes:
    """A piece of a vector as a frame with every bit of it."""
    return encode({_PART: EveryBit(torch.from_numpy(np.array(values)))}, FrameKind.STATE, version)


def opened(frame: bytes | memoryview, kind: FrameKind, version: int, dim: int) -> Tensor:
    """The decoded piece of a frame that must be of this kind, version and length."""
    found = decode(frame, max_dim=dim, max_relayed=0, expected={_PART: dim})
    if found.kind != kind or found.round != version:
        raise WireError(
            f"A frame is of kind {found.kind.name} and version {found.round}; {kind.name} {version} is due."
        )
    payload = found.message[_PART]
    values = payload.dense()
    if payload.largest() >= MODERATE or (dim and not float(values.abs().max()) < MODERATE):
        raise WireError(f"A frame has numbers of {MODERATE:g} and more.")
    return values


def frames_of(body: memoryview) -> Iterator[memoryview]:
    """The frames that a body consists of, not looked into; a `WireError` where it is anything else."""
    at = 0
    while at < len(body):
        size = FRAME.overhead + sum(FRAME.read_head(body[at:]).lengths)
        if size > len(body) - at:
            raise WireError(f"A frame is cut off: its header says {size} bytes, there are {len(body) - at}.")
        yield body[at : at + size]
        at += size
