"""What is checked before a replica is used or a reply may enter a mean."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.wire import Contexts, FrameKind, OtherPartsError, Payload, WireError, decode, head_of
from fedcef.wire.payload import MODERATE

ROOM = 1 << 20
"""What a message may take beyond its vectors: names, headers, scales, padding of rotations."""


class Unusable(Exception):
    """A reply that is not taken: a short reason, which is counted, and what exactly was wrong."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


def hash_of(replica: State) -> bytes:
    """Tells replicas apart that differ in a single bit; 16 bytes."""
    state = hashlib.blake2b(digest_size=16)
    for name in sorted(replica):
        vector = replica[name].detach().cpu().contiguous()
        state.update(f"{name} {vector.dtype} {len(vector)} ".encode())
        state.update(vector.numpy().data)
    return state.digest()


def largest_reply(parts: Mapping[str, int]) -> int:
    """The bytes of the longest reply that makes sense: every vector whole, in float64."""
    return sum(8 * dim for dim in parts.values()) + ROOM


def checked_message(
    frame: bytes, round_: int, parts: Mapping[str, int], dtype: torch.dtype, contexts: Contexts
) -> Message:
    """The up-message of a round, its parts in the method's order; nothing in it can upset the server's arithmetic.

    What is no up-message of the round, or has other vectors than these, is refused before anything of it is decoded: so
    a reply costs no more than its length and its vectors' do (docs/wire.md).
    """
    try:
        kind, number = head_of(frame)
        if kind != FrameKind.UP or number != round_:
            raise Unusable("invalid frame", f"It is of kind {kind} and round {number}.")
        up = decode(frame, max_dim=max(parts.values(), default=0), contexts=contexts, expected=parts)
    except OtherPartsError as error:
        raise Unusable("other vectors", str(error)) from None
    except WireError as error:
        raise Unusable("invalid frame", str(error)) from None
    for name, payload in up.message.items():
        vector = _vector_of(name, payload)
        if vector.dtype not in (torch.float32, dtype):
            raise Unusable("other vectors", f"{name} is {vector.dtype}; this run's vectors are {dtype}.")
        if payload.largest() >= MODERATE or not float(vector.abs().max()) < MODERATE:
            raise Unusable("too large", f"{name} has numbers of {MODERATE:g} and more.")
    return {name: up.message[name] for name in parts}


def _vector_of(name: str, payload: Payload) -> Tensor:
    """A payload's vector.  Its form may be of another package, and no client's bytes may end the server."""
    try:
        return payload.dense()
    except Exception as error:
        raise Unusable("invalid frame", f"{name} cannot be decoded: {type(error).__name__}: {error}") from None
