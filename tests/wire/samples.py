"""Payloads of every kind, and frames put together by hand."""

from __future__ import annotations

import struct
import zlib

import torch
from torch import Tensor

from fedcef import rng
from fedcef.wire import Dense, Nonzeros, Payload, Seeded, Sparse, decode

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]

SUPPORTS = {  # name: (indices, dim)
    "empty": ([], 40),
    "empty of nothing": ([], 0),
    "one of one": ([0], 1),
    "first": ([0], 1000),
    "last": ([999], 1000),
    "last of 2^32 - 1": ([2**32 - 2], 2**32 - 1),
    "ends of 2^32 - 1": ([0, 1, 2**31, 2**32 - 2], 2**32 - 1),
    "all": (list(range(77)), 77),
    "all but the first": (list(range(1, 78)), 78),
    "cluster at the end": (list(range(49_900, 50_000)), 50_000),
    "three clusters": ([*range(10, 60), *range(20_000, 20_080), *range(99_000, 99_005)], 100_000),
    "every seventh": (list(range(0, 7000, 7)), 7000),
}


def vector(count: int, dtype: torch.dtype = torch.float32, *, seed: int = 0) -> Tensor:
    return rng.normal(rng.seed_key(seed), count).to(dtype)


def sparse(support: str, dtype: torch.dtype = torch.float32) -> Sparse:
    indices, dim = SUPPORTS[support]
    return Sparse(vector(len(indices), dtype), torch.tensor(indices, dtype=torch.int64), dim)


def masked(lead: tuple[int, ...], dim: int, ratio: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """A random vector (*lead, dim) with about ratio × dim non-zeros."""
    size = int(torch.Size((*lead, dim)).numel())
    keep = rng.uniform(rng.seed_key(1), size) < ratio
    return (vector(size) * keep).reshape(*lead, dim).to(dtype)


def stacks(lead: tuple[int, ...], dtype: torch.dtype = torch.float32) -> dict[str, Payload]:
    """One payload of each kind over the given leading axes."""
    dim, kept = 600, 50
    full = masked(lead, dim, 1.0, dtype)
    indices = full.float().abs().topk(kept).indices.sort().values
    return {
        "dense": Dense(full),
        "sparse": Sparse(full.gather(-1, indices), indices, dim),
        "seeded": Seeded(full[..., :kept], rng.seed_key(2), dim),
        "nonzeros": Nonzeros(masked(lead, dim, 0.05, dtype)),
        "many nonzeros": Nonzeros(masked(lead, dim, 0.4, dtype)),
        "only nonzeros": Nonzeros(full),
        "no nonzeros": Nonzeros(torch.zeros_like(full)),
    }


def frame(
    *parts: bytes, magic: bytes = b"FCEF", version: int = 1, kind: int = 1, count: int | None = None, extra: int = 0
) -> bytes:
    """A frame of the given part bytes with a right checksum; `extra` is added to the declared body length."""
    body = b"".join(parts)
    number = len(parts) if count is None else count
    return repaired(struct.pack("<4sBBBIQ", magic, version, kind, number, 0, len(body) + extra) + body + bytes(4))


def part(payload: bytes, name: bytes = b"c") -> bytes:
    return bytes([len(name)]) + name + payload


def repaired(data: bytes) -> bytes:
    """The same bytes with a right checksum at their end."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


def decoded_part(payload: bytes) -> Payload:
    return decode(frame(part(payload)), max_dim=2**32).message["c"]
