"""Which entries of a vector are sent: ascending indices in the smallest of three codes.

    raw     each index as an unsigned 32-bit integer
    bitmap  one bit for each of the vector's entries
    Rice    the gaps between indices, g_j = i_j - i_{j-1} - 1 with i_{-1} = -1:  g_j >> b in unary, and the
            b low bits as they are (Golomb 1966, Rice 1979); within 2% of the entropy of a random support

`plan` computes sizes with integer tensor operations of static shape, for one vector or a stack, on any
device; the encoder follows the same plan, so the two cannot disagree.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcef.wire.bits import (
    Integers,
    bytes_for,
    pack_fixed,
    pack_unary,
    positions_of_ones,
    require_zero_padding,
    unpack_fixed,
)
from fedcef.wire.errors import WireError
from fedcef.wire.reader import Reader

RAW, BITMAP, RICE = range(3)

MAX_RICE = 31
_WINDOW = range(-4, 2)  # Rice parameters tried, around floor(log2(dim / count)); low ones are for clusters
_CODE = struct.Struct("<B")
_RICE = struct.Struct("<BI")  # parameter, bytes of the unary stream


class Plan(NamedTuple):
    """How the indices of each vector of a stack (...) are coded."""

    nbytes: Tensor
    code: Tensor
    rice: Tensor  # the Rice parameter


def gaps_of(indices: Tensor) -> Tensor:
    """Ascending indices (..., k) -> the number of entries left out before each, (..., k)."""
    before_first = indices.new_full((*indices.shape[:-1], 1), -1)
    return torch.diff(indices, prepend=before_first) - 1


def gaps_of_mask(mask: Tensor) -> Tensor:
    """The same from a mask (..., p) of the entries that are sent; zero where none is."""
    position = torch.arange(mask.shape[-1], device=mask.device)
    last_sent = torch.where(mask, position, -1).cummax(-1).values
    before = torch.nn.functional.pad(last_sent, (1, 0), value=-1)[..., :-1]
    return torch.where(mask, position - before - 1, 0)


def plan(gaps: Tensor, count: Tensor, dim: int) -> Plan:
    """Gaps (..., m), of which `count` (...) belong to entries and the others are zero -> sizes and codes (...)."""
    rice, rice_size = _best_rice(gaps, count, dim)
    nbytes, code = 4 * count, torch.full_like(count, RAW)
    for other, size in (BITMAP, torch.full_like(count, bytes_for(dim))), (RICE, rice_size):
        code = torch.where(size < nbytes, other, code)
        nbytes = torch.minimum(size, nbytes)
    return Plan(_CODE.size + nbytes, code, rice)


def encode_indices(indices: Tensor, dim: int) -> bytes:
    """(k,) -> the code's number and the coded indices."""
    gaps = gaps_of(indices)
    if gaps.numel() and int(gaps.min()) < 0:
        raise WireError("Indices are negative or not strictly ascending; a sparse vector's must be ascending from 0.")
    if gaps.numel() and int(indices[-1]) >= dim:
        raise WireError(f"Index {int(indices[-1])} lies outside a vector of dimension {dim}.")
    choice = plan(gaps, torch.tensor(gaps.numel(), device=gaps.device), dim)
    code, parameter = int(choice.code), int(choice.rice)
    array = indices.detach().cpu().numpy()
    if code == RAW:
        body = array.astype("<u4").tobytes()
    elif code == BITMAP:
        present = np.zeros(dim, dtype=np.uint8)
        present[array] = 1
        body = np.packbits(present, bitorder="little").tobytes()
    else:
        body = _rice_bytes(gaps.detach().cpu().numpy(), parameter)
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
        indices = _read_rice(reader, count, dim)
    else:
        raise WireError(f"Unknown index code {code}; allowed are 0 (raw), 1 (bitmap) and 2 (Rice).")
    if count and int(indices[-1]) >= dim:
        raise WireError(f"Index {int(indices[-1])} lies outside a vector of dimension {dim}.")
    return torch.from_numpy(indices)


def _best_rice(gaps: Tensor, count: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The parameter with the smallest size in the window, the lower one on a tie, and that size: (...), (...)."""
    spacing = dim // count.clamp(min=1)
    powers = torch.arange(1, MAX_RICE + 1, device=count.device)
    centre = (spacing.unsqueeze(-1) >> powers > 0).sum(-1)  # floor(log2(spacing)), in exact integers
    parameters = [(centre + offset).clamp(0, MAX_RICE) for offset in _WINDOW]
    sizes = [_rice_size(gaps, count, parameter) for parameter in parameters]
    best, size = parameters[0], sizes[0]
    for other, other_size in zip(parameters[1:], sizes[1:], strict=True):
        best = torch.where(other_size < size, other, best)
        size = torch.minimum(other_size, size)
    return best, size


def _rice_size(gaps: Tensor, count: Tensor, parameter: Tensor) -> Tensor:
    unary_bits = count + (gaps >> parameter.unsqueeze(-1)).sum(-1)
    return _RICE.size + (unary_bits + 7) // 8 + (count * parameter + 7) // 8


def _rice_bytes(gaps: Integers, parameter: int) -> bytes:
    unary = pack_unary(gaps >> parameter)
    low = pack_fixed(gaps & ((1 << parameter) - 1), parameter)
    return _RICE.pack(parameter, len(unary)) + unary + low


def _read_rice(reader: Reader, count: int, dim: int) -> Integers:
    parameter, unary_size = reader.unpack(_RICE, "the Rice header")
    if parameter > MAX_RICE:
        raise WireError(f"Rice parameter {parameter} is not allowed; the largest is {MAX_RICE}.")
    longest = bytes_for(count + (dim - count >> parameter))  # also keeps all sums below 2^63
    if unary_size > longest:
        raise WireError(
            f"The unary stream has {unary_size} bytes; {count} of {dim} indices need no more than {longest}."
        )
    unary = reader.take(unary_size, "the unary stream")
    low = reader.take(bytes_for(count * parameter), "the stream of low bits")

    ends = positions_of_ones(unary, count, "unary stream")
    if unary_size != bytes_for(int(ends[-1]) + 1 if count else 0):
        raise WireError(f"The unary stream of {unary_size} bytes goes on after its last number.")
    # ends_j = j + (sum of the quotients up to j), and index_j = j + (sum of the gaps up to j)
    order = np.arange(count)
    ends -= order
    ends <<= parameter
    ends += order
    del order
    if parameter:
        ends += np.cumsum(unpack_fixed(low, count, parameter, "stream of low bits"), dtype=np.int64)
    return ends
