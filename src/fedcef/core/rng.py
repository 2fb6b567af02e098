"""Counter-based randomness: every random number is a hash of where it is used.

A key is an int64 tensor; its leading axes, if any, are clients.  Keys are *folded* from
(seed, round, client, purpose), so that a number depends on nothing that was drawn before it: the
simulator, a deployed client, a resumed run and any device get the same minibatches and the same noise.

The hash is the finaliser of SplitMix64 (Steele, Lea, Flood 2014) on wrap-around 64-bit integers; it
uses only exact integer operations, so CPU and GPU agree bit for bit.

Who draws what in a round is said in one place, `fedcef.core.round`; no other module folds keys of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import CONTINUOUS, UNIQUE, IntEnum, verify
from math import isqrt
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 / golden ratio, as a signed 64-bit integer
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)
_CHUNK = 1 << 15  # hashes computed at a time on the host: they stay in the cache


@verify(UNIQUE, CONTINUOUS)
class Purpose(IntEnum):
    """What a key is folded for.

    Keys with different purposes never meet: a number (a round, a client, a step) is folded into a key only after the
    purpose that says what it counts.  The numbers are part of every result; a new purpose takes the next one.
    """

    BATCHES = 1
    COMPRESSION = 2
    COHORT = 3
    PARTITION = 4
    PARAMETERS = 5
    SYNTHETIC = 6
    ROUNDS = 7
    CLIENTS = 8
    DROPOUT = 9
    AUGMENT = 10
    SERVER = 11
    NOISE = 12
    NETWORK = 13
    AVAILABILITY = 14
    AGAIN = 15
    ATTACK = 16


class Key(NamedTuple):
    """The randomness of one round: what all participants share, and what each has of its own."""

    shared: Tensor  # ()
    own: Tensor  # (...): one key per client of the cohort, or of a part of it
    part: tuple[slice, int] | None = None  # that part's places in the cohort, and the cohort's size; None = all of it

    def fold(self, purpose: Purpose) -> Key:
        """The keys of one purpose."""
        return Key(fold(self.shared, Purpose(purpose)), fold(self.own, Purpose(purpose)), self.part)

    def of(self, places: slice) -> Key:
        """The key of the clients in these places of the cohort, who know that there are others."""
        start, stop, _ = places.indices(len(self.own))
        first, size = (self.part[0].start, self.part[1]) if self.part else (0, len(self.own))
        return Key(self.shared, self.own[places], (slice(first + start, first + stop), size))

    @property
    def places(self) -> tuple[slice, int]:
        """Where these clients stand in the cohort, and how many it has."""
        return self.part or (slice(0, len(self.own)), len(self.own))

    @property
    def noise(self) -> Tensor:
        """What each client's noise is drawn from, where messages are private."""
        return self.fold(Purpose.NOISE).own

    def of_part(self, number: int) -> Tensor:
        """What all participants share for one of several parts of a vector."""
        return fold(self.shared, number)


def seed_key(seed: int) -> Tensor:
    """The root key of a run."""
    return _mix(torch.tensor(_signed(seed), dtype=torch.int64) + _GOLDEN)


def fixed_key() -> Tensor:
    """The key of what is drawn alike in every run, such as a split into training and test set."""
    return seed_key(0)


def data_key(seed: int, purpose: Purpose, *numbers: int | Tensor) -> Tensor:
    """A key for what is drawn once and not in a round: a deal of the samples, start values, made-up data."""
    key = fold(seed_key(seed), Purpose(purpose))
    for number in numbers:
        key = fold(key, number)
    return key


def fold(key: Tensor, data: int | Tensor) -> Tensor:
    """A new key for `data` (a round, a client, a purpose) under `key`; broadcasts."""
    spread = (data + 1) * _GOLDEN if isinstance(data, Tensor) else _signed((int(data) + 1) * _GOLDEN)
    return _mix(_mix(key ^ spread) + _GOLDEN)


def round_key(seed: int, round_: int | Tensor, clients: Tensor) -> Key:
    """The key of a round for the given client numbers; the round may be a number on the clients' device."""
    shared = fold(fold(seed_key(seed), Purpose.ROUNDS), round_).to(clients.device)
    return Key(shared, fold(fold(shared, Purpose.CLIENTS), clients))


def bits(key: Tensor, count: int, start: int = 0) -> Tensor:
    """`count` pseudo-random int64 per key: (...) -> (..., count), from place `start` of the key's sequence on."""
    counter = torch.arange(start + 1, start + count + 1, dtype=torch.int64, device=key.device)
    return _mix(key.unsqueeze(-1) + counter * _GOLDEN)


def short_bits(key: Tensor, count: int, start: int = 0) -> Tensor:
    """`count` pseudo-random int16 per key, four from each int64 of the sequence, of which the first is at `start`."""
    words = bits(key, -(-count // 4), start)
    try:
        short = words.view(torch.int16)
    except RuntimeError:  # under vmap, before torch 2.12
        shifts = torch.arange(0, 64, 16, device=key.device)
        short = (words.unsqueeze(-1) >> shifts).to(torch.int16).flatten(-2)
    return short[..., :count]


def uniform(key: Tensor, count: int) -> Tensor:
    """`count` float64 in [0, 1) per key, with 53 random bits each."""
    return torch.mul(_shift_right(bits(key, count), 11).to(torch.float64), 2.0**-53)


def normal(key: Tensor, count: int) -> Tensor:
    """`count` standard normal float64 per key (inverse normal distribution function)."""
    numbers: Tensor = torch.special.ndtri(uniform(key, count) + 2.0**-54)
    return numbers


def normals(seed: int, purpose: Purpose) -> Callable[..., Tensor]:
    """A source of standard normal tensors for made-up data: draw(which, *shape), float64, each `which` its own."""

    def draw(which: int, *shape: int) -> Tensor:
        return normal(data_key(seed, purpose, which), torch.Size(shape).numel()).reshape(shape)

    return draw


def integers(key: Tensor, count: int, below: Tensor) -> Tensor:
    """`count` integers in [0, below) per key; `below` has the key's shape.

    The remainder of a 63-bit number: its bias, below/2^63, cannot be seen.
    """
    return _shift_right(bits(key, count), 1) % below.unsqueeze(-1)


def permutation(key: Tensor, size: int) -> Tensor:
    """A pseudo-random order of 0..size-1, for a single key."""
    return torch.argsort(bits(key, size), stable=True)


def permutations(keys: Tensor, sizes: Tensor) -> Tensor:
    """`permutation(keys[i], sizes[i])` for all i at once, one after the other: (N,), (N,) -> (sum of sizes,).

    Each counts from where it begins, so that the whole is an order of 0..sum-1.
    """
    owner = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    counter = torch.arange(1, len(owner) + 1, device=sizes.device) - (sizes.cumsum(0) - sizes)[owner]
    order = torch.argsort(_mix(keys[owner] + counter * _GOLDEN), stable=True)
    return order[torch.argsort(owner[order], stable=True)]


def subset(key: Tensor, dim: int, count: int) -> Tensor:
    """`count` distinct indices below `dim`, ascending, for a single key."""
    return permutation(key, dim)[:count].sort().values


def host_subset(key: int, dim: int, count: int) -> Tensor:
    """`subset` on the host, for a key that is known there: in a pass over the hashes, and many times faster.

    It is where the lowest hashes are.  No two are equal, and only those below a guess are looked at twice, of which
    there are a few more than `count`.
    """
    if not 0 < count < dim:
        return torch.arange(min(count, dim))
    guess = min((count + 8 * isqrt(count) + 64 << 64) // dim, (1 << 64) - 1) - (1 << 63)
    found = [_below(guess, key, start, min(_CHUNK, dim - start)) for start in range(0, dim, _CHUNK)]
    places, hashes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if len(places) < count:  # no hash is that far from random, but the bits must not depend on it
        return subset(torch.tensor(key), dim, count)
    return torch.from_numpy(places[hashes <= np.partition(hashes, count - 1)[count - 1]])


def _below(most: int, key: int, start: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of some hashes are at most this large, and these hashes."""
    x = np.arange(start + 1, start + count + 1, dtype=np.uint64)
    x *= np.uint64(_GOLDEN % 2**64)
    x += np.uint64(key % 2**64)
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor % 2**64)
    hashes = (x ^ x >> np.uint64(31)).view(np.int64)
    chosen = np.flatnonzero(hashes <= most)
    return chosen + start, hashes[chosen]


def few(key: Tensor, dim: int, count: int) -> Tensor:
    """`count` distinct indices below `dim`, ascending, for a single key, at a cost that does not depend on `dim`.

    The first ones that differ from all before them among 2·count + 64 draws with replacement.  For dim above 16,000 and
    count at most dim/8 there are enough of them but for a chance below 1e-100.
    """
    draws = integers(key, 2 * count + 64, torch.full_like(key, dim))
    order = torch.argsort(draws, stable=True)
    again = torch.zeros_like(order, dtype=torch.bool)
    again[order[1:]] = draws[order[1:]] == draws[order[:-1]]
    return draws[torch.argsort(again, stable=True)[:count]].sort().values  # those drawn before stand last


def _signed(number: int) -> int:
    """A Python integer wrapped around to 64 bits, as a tensor's arithmetic would."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _shift_right(x: Tensor, n: int) -> Tensor:
    """Logical (zero-filling) shift; torch's own keeps the sign."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)
