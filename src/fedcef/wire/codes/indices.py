"""Which entries of a vector are sent: ascending indices in the smallest of four codes.

    raw      each index as an unsigned 32-bit integer
    bitmap   one bit for each of the vector's entries
    Rice     the gaps between indices, g_j = i_j - i_{j-1} - 1 with i_{-1} = -1, with one Rice parameter
    grouped  the same with a parameter for each group of 128 gaps

`plan` computes sizes with integer tensor operations of static shape, for one vector or a stack, on any
device; the encoder follows the same plan, so the two cannot disagree.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcef.core.scan import running_count
from fedcef.wire.codes.bits import bytes_for, positions_of_ones, require_zero_padding
from fedcef.wire.codes.rice import (
    best_group_parameters,
    best_parameter,
    grouped_bytes,
    read_grouped,
    read_rice,
    rice_bytes,
)
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.stacks import in_pieces

RAW, BITMAP, RICE, GROUPED = range(4)

_CODE = struct.Struct("<B")


class Plan(NamedTuple):
    """How the indices of each vector of a stack (...) are coded."""

    nbytes: Tensor
    code: Tensor
    rice: Tensor  # the Rice parameter
    grouped: Tensor  # (..., groups), those of the groups


def gaps_of(indices: Tensor) -> Tensor:
    """Ascending indices (..., k) -> the number of entries left out before each, (..., k)."""
    before_first = indices.new_full((*indices.shape[:-1], 1), -1)
    return torch.diff(indices, prepend=before_first) - 1


def gaps_of_mask(mask: Tensor) -> Tensor:
    """The same from a mask (..., p) of the entries that are sent; (..., p), zero after the last of them."""
    dim = mask.shape[-1]
    position = torch.arange(dim, device=mask.device).expand(mask.shape)
    rank = running_count(mask)
    slot = torch.where(mask, rank - 1, dim)  # what is not sent lands in one slot more, which is cut off
    indices = torch.zeros((*mask.shape[:-1], dim + 1), dtype=torch.int64, device=mask.device)
    gaps = gaps_of(indices.scatter(-1, slot, position)[..., :dim])
    return torch.where(position < rank[..., -1:], gaps, 0)


def plan(gaps: Tensor, count: Tensor, dim: int) -> Plan:
    """Gaps (..., m), of which the first `count` (...) belong to entries and the others are zero -> sizes and codes."""
    return Plan(*in_pieces(partial(_plan, dim=dim), gaps, count))


def _plan(gaps: Tensor, count: Tensor, dim: int) -> Plan:
    rice, grouped = best_parameter(gaps, count, dim), best_group_parameters(gaps, count)
    bitmap = torch.full_like(count, bytes_for(dim))
    nbytes, code = torch.stack([4 * count, bitmap, rice.nbytes, grouped.nbytes], dim=-1).min(-1)  # the first on a tie
    return Plan(_CODE.size + nbytes, code, rice.chosen, grouped.chosen)


def encode_indices(indices: Tensor, dim: int) -> bytes:
    """(k,) -> the code's number and the coded indices."""
    gaps = gaps_of(indices)
    if gaps.numel() and int(gaps.min()) < 0:
        raise WireError("Indices are negative or not strictly ascending; a sparse vector's must be ascending from 0.")
    if gaps.numel() and int(indices[-1]) >= dim:
        raise WireError(f"Index {int(indices[-1])} lies outside a vector of dimension {dim}.")
    choice = plan(gaps, torch.tensor(gaps.numel(), device=gaps.device), dim)
    code = int(choice.code)
    array, gap_array = indices.detach().cpu().numpy(), gaps.detach().cpu().numpy()
    if code == RAW:
        body = array.astype("<u4").tobytes()
    elif code == BITMAP:
        present = np.zeros(dim, dtype=np.uint8)
        present[array] = 1
        body = np.packbits(present, bitorder="little").tobytes()
    elif code == RICE:
        body = rice_bytes(gap_array, int(choice.rice))
    else:
        body = grouped_bytes(gap_array, choice.grouped.cpu().numpy())
    return _CODE.pack(code) + body


def read_indices(reader: Reader, count: int, dim: int) -> Tensor:
    """`count` (at most `dim`) indices -> (count,), ascending and below `dim`."""
    (code,) = reader.unpack(_CODE, "the index code")
    if code == RAW:
        indices = np.frombuffer(reader.take(4 * count, "the raw indices"), dtype="<u4").astype(np.int64)
        if not (indices[1:] > indices[:-1]).all():
            raise WireError("The raw indices are not strictly ascending.")
    elif code == BITMAP:
        bitmap = reader.take(bytes_for(dim), "the index bitmap")
        require_zero_padding(bitmap, dim, "index bitmap")
        indices = positions_of_ones(bitmap, count, "index bitmap")
    elif code == RICE:
        indices = read_rice(reader, count, dim)
    elif code == GROUPED:
        indices = read_grouped(reader, count, dim)
    else:
        allowed = "0 (raw), 1 (bitmap), 2 (Rice) and 3 (grouped Rice)"
        raise WireError(f"Unknown index code {code}; allowed are {allowed}.")
    if count and int(indices[-1]) >= dim:
        raise WireError(f"Index {int(indices[-1])} lies outside a vector of dimension {dim}.")
    return torch.from_numpy(indices)
