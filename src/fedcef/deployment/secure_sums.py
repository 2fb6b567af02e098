"""Masked messages: what a client masks, and what the server makes of the unmasked sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message
from fedcef.compressors.grid import Grid as OnGridCompressor
from fedcef.compressors.on_grid import OnGrid, Summed
from fedcef.deployment.checks import Unusable
from fedcef.deployment.protocol import Protocol
from fedcef.secure.primitives import Whole
from fedcef.secure.ring import needed
from fedcef.secure.section import Secure
from fedcef.wire import FrameKind, Payload, decode, encode

Mask = Callable[[Whole, int], Whole]
"""mask(numbers, bits): numbers modulo 2^bits under this session's masks."""
Masks = Callable[[bytes, int], Mask]
"""masks(run, round): the masks that are ready for this run and round."""
Grid = tuple[int, ...]
"""What all messages of a round have in common (`OnGrid.grid`)."""


def masked(up: Message, mask: Mask) -> Message:
    """An up-message, which is one vector on a grid, under masks."""
    ((name, payload),) = up.items()
    assert isinstance(payload, OnGrid)
    return {name: replace(payload, steps=_centred(mask(numbers_of(up), payload.bits), payload.bits))}


def numbers_of(message: Message) -> Whole:
    """The numbers of a message modulo 2^bits."""
    (payload,) = message.values()
    assert isinstance(payload, OnGrid)
    whole = payload.steps.to(torch.int64).numpy() & ((1 << payload.bits) - 1)
    return whole.astype(np.uint32)


def least_in(secure: Secure | None, asked: int) -> int:
    """How many of those asked must stay, so that the sum can be unmasked; 0 where nothing is masked."""
    if secure is None:
        return 0
    return needed(secure.threshold, min(asked, secure.neighbours + 1) if secure.neighbours else asked)


def in_range(total: Whole, grid: OnGridCompressor, count: int) -> bool:
    """Whether an unmasked sum is one that so many clients can have; a wrong mask makes it any numbers at all."""
    return bool((_centred(total, grid.width).abs() <= count * grid.largest).all())


def grid_of(protocol: Protocol, round_: int) -> Grid:
    """The grid of a round."""
    key = protocol.rounds.of_client(round_, 0).compression
    payload = protocol.algorithm.compressor.compress(torch.zeros(protocol.dim), key)
    assert isinstance(payload, OnGrid)
    return payload.grid


def require_grid(message: Message, grid: Grid) -> None:
    """Refuse what cannot be added to the round's other messages."""
    for name, payload in message.items():
        if not isinstance(payload, OnGrid) or payload.grid != grid:
            raise Unusable("other vectors", f"{name} is not on the grid of the round.")


def encode_total(like: Message, total: Whole, round_: int) -> bytes:
    """The unmasked sum of messages like this one, for the server's disk."""
    ((name, payload),) = like.items()
    assert isinstance(payload, OnGrid)
    return encode({name: replace(payload, steps=_centred(total, payload.bits))}, FrameKind.UP, round_)


def read_total(frame: bytes, count: int) -> Mapping[str, Payload]:
    """That sum as a stack of so many messages, of which there is nothing else."""
    message = decode(frame).message
    return {name: Summed(payload, count) for name, payload in message.items() if isinstance(payload, OnGrid)}


def _centred(numbers: Whole, bits: int) -> Tensor:
    """Numbers modulo 2^bits as those nearest to zero."""
    whole = torch.from_numpy(numbers.astype(np.int64))
    return (whole - ((whole >> bits - 1) << bits)).float()
