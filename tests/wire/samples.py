"""Payloads of every kind, and frames put together by hand."""

from __future__ import annotations

import struct
import zlib
from functools import cache

import torch
from torch import Tensor

from fedcef.core import rng
from fedcef.wire import (
    TABLES,
    Dense,
    Levels,
    LevelTables,
    LowRank,
    Nonzeros,
    Payload,
    Powers,
    Relay,
    Rotated,
    Seeded,
    Sparse,
    Values,
    decode,
    rotate,
    smallest,
)

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


def symbols(lead: tuple[int, ...], count: int, size: int, *, spread: float = 0.15, seed: int = 4) -> Tensor:
    """Random codes (*lead, count) below `size`; the smaller the spread, the more of them are in the middle."""
    total = int(torch.Size((*lead, count)).numel())
    codes = (rng.normal(rng.seed_key(seed), total) * spread * size + size / 2).floor().clamp(0, size - 1)
    return codes.reshape(*lead, count).to(torch.uint8)


def levels(lead: tuple[int, ...], count: int, table: str, block: int = 0, *, spread: float = 0.15) -> Levels:
    blocks = -(-count // block) if block else 1
    scales = masked(lead, blocks, 1.0).abs()
    return Levels(symbols(lead, count, len(TABLES[table].levels), spread=spread), scales, table, block)


def level_tables(lead: tuple[int, ...], count: int, bits: int, block: int = 0) -> LevelTables:
    blocks = -(-count // block) if block else 1
    tables = masked(lead, blocks << bits, 1.0).reshape(*lead, blocks, 1 << bits)
    return LevelTables(symbols(lead, count, 1 << bits), tables, bits, block)


def values_of_every_kind(lead: tuple[int, ...], count: int) -> dict[str, Values]:
    numbers = masked(lead, count, 1.0)
    return {
        **{table: levels(lead, count, table) for table in TABLES},
        "uniform4 in blocks": levels(lead, count, "uniform4", 7),
        "flat ternary": levels(lead, count, "ternary", spread=9.0),
        "flat normal4": levels(lead, count, "normal4", 32, spread=9.0),
        **{f"tables of {bits} bits": level_tables(lead, count, bits, 32 * (bits % 2)) for bits in (1, 2, 3, 4)},
        "powers": Powers.of(numbers),
        "powers and zeros": Powers.of(masked(lead, count, 0.6)),
        "wide powers": Powers.of((10 * numbers).exp2() * numbers.sign()),
        "only zeros": Powers.of(numbers * 0),
    }


@cache
def coded(lead: tuple[int, ...]) -> dict[str, Payload]:
    """Payloads of the forms that are not plain numbers over the given leading axes; decoded, all are float32."""
    dim, kept = 600, 50
    indices = masked(lead, dim, 1.0).abs().topk(kept).indices.sort().values
    own = rng.fold(rng.seed_key(5), torch.arange(int(torch.Size(lead).numel())).reshape(lead))
    rotated = rotate(masked(lead, dim, 1.0), own, 64)
    full = masked(lead, dim, 0.05) + 0.0  # no negative zeros
    return {
        **{f"dense {name}": Dense(values) for name, values in values_of_every_kind(lead, dim).items()},
        **{f"sparse {name}": Sparse(values, indices, dim) for name, values in values_of_every_kind(lead, kept).items()},
        "seeded levels": Seeded(levels(lead, kept, "normal2"), rng.seed_key(2), dim),
        "rotated": Rotated(rotated, own, dim, 64),
        "rotated half": Rotated(rotated.half(), own, dim, 64),
        "rotated levels": Rotated(levels(lead, 640, "normal2", 64), own, dim, 64),
        "rotated with one key": Rotated(levels(lead, 1024, "sign", 256), rng.seed_key(6), dim, 512),
        "low rank": LowRank(
            masked(lead, 2 * 30, 1.0),
            masked(lead, 2 * 35, 1.0),
            masked(lead, 100, 1.0),
            (70, (20, 15), 30, (10, 20)),
            2,
        ),
        "plain low rank": LowRank(full[..., :0], full[..., :0], full, (dim,), 1),
        "smallest": smallest(Dense(full), Nonzeros(full)),
    }


DISTINCT = [
    *stacks(()),
    *("dense " + name for name in ("sign", "ternary", "uniform8", "uniform4 in blocks", "tables of 1 bits", "powers")),
    *("sparse " + name for name in ("normal4", "tables of 2 bits", "wide powers", "only zeros")),
    *("seeded levels", "rotated half", "rotated levels", "rotated with one key"),
    *("low rank", "plain low rank", "smallest"),
]
"""Of the payloads that `every` gives, those that differ in more than a table's numbers."""


@cache
def relays() -> dict[str, Relay]:
    """Payloads without leading axes that pass on those of five clients."""
    return {f"relayed {name}": Relay(every((5,))[name], 0.3) for name in DISTINCT}


def every(lead: tuple[int, ...] = ()) -> dict[str, Payload]:
    """Payloads of every kind that can be stacked, in float32."""
    return stacks(lead) | coded(lead)


def frame(
    *parts: bytes, magic: bytes = b"FCEF", version: int = 1, kind: int = 2, count: int | None = None, extra: int = 0
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
