"""What is checked before a replica is used or a reply may enter a mean."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

from fedcef.algorithms.algorithm import Message, State
from fedcef.wire import Contexts, FrameKind, Relay, WireError, decode
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
    """The up-message of a round, its parts in the method's order; nothing in it can upset the server's arithmetic."""
    try:
        up = decode(frame, max_dim=max(parts.values(), default=0), contexts=contexts)
    except WireError as error:
        raise Unusable("invalid frame", str(error)) from None
    if up.kind != FrameKind.UP or up.round != round_:
        raise Unusable("invalid frame", f"It is of kind {up.kind.name} and round {up.round}.")
    found = {name: payload.dim for name, payload in up.message.items()}
    if found != dict(parts):
        raise Unusable("other vectors", f"The message has {found}; this method sends {dict(parts)}.")
    for name, payload in up.message.items():
        if isinstance(payload, Relay):
            raise Unusable("other vectors", f"{name} is a relay, which only comes down.")
        vector = payload.dense()
        if vector.dtype not in (torch.float32, dtype):
            raise Unusable("other vectors", f"{name} is {vector.dtype}; this run's vectors are {dtype}.")
        if payload.largest() >= MODERATE or not float(vector.abs().max()) < MODERATE:
            raise Unusable("too large", f"{name} has numbers of {MODERATE:g} and more.")
    return {name: up.message[name] for name in parts}
