"""The sparsifier of CompressedScaffnew and TAMUNA: every entry is sent by exactly s of the c clients of a cohort.

A table with a row for each of the p entries and c columns has s ones in a row, dealt out one after the other: those of
entry i are in columns i·s, …, i·s + s - 1, modulo c.  The round's shared key permutes the columns, and each client
takes the one of its place in the cohort.  Column a has its ones in the entries (a + l·c) div s, l = 0, 1, …: ⌈ps/c⌉ or
one less.  As everyone knows the table, the number of the column says which entries a message holds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcef.core.errors import ConfigError
from fedcef.core.rng import Key, permutation


def columns_of(key: Key) -> Tensor:
    """The column of each of these clients in this round; they are in the cohort's order."""
    if key.own.ndim != 1:
        raise ConfigError(
            "Which entries a client sends depends on its place in the cohort, and a client by itself is not told its "
            "place; simulate the run, or take senders = 0."
        )
    places, size = key.places
    return permutation(key.shared, size)[places]


def entries_of(columns: Tensor, dim: int, senders: int, size: int) -> Tensor:
    """The entries in these columns of a table for `size` clients, (..., ⌈ps/c⌉); `dim` stands for none."""
    count = -(-dim * senders // size)
    places = columns.unsqueeze(-1) + size * torch.arange(count, device=columns.device)
    return (places // senders).clamp(max=dim)


def taken(x: Tensor, entries: Tensor) -> Tensor:
    """x at these entries, 0 where there is none."""
    return torch.cat([x, x.new_zeros((*x.shape[:-1], 1))], -1).gather(-1, entries)


def put_back(values: Tensor, entries: Tensor, dim: int) -> Tensor:
    """A vector with these values at these entries, 0 elsewhere."""
    return values.new_zeros((*values.shape[:-1], dim + 1)).scatter(-1, entries, values)[..., :dim]
