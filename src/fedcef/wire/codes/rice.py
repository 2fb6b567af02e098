"""Gaps between indices in Rice codes: g >> b in unary, and the b low bits as they are (Golomb 1966, Rice 1979).

One parameter b for all gaps is within 2% of the entropy of a random support.  A parameter for each group of 128 gaps
follows supports whose density changes along the vector, as it does from layer to layer.

Parameters and sizes are found with integer tensor operations of static shape, for one vector or a stack.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcef.wire.codes.bits import (
    Integers,
    bytes_for,
    pack_fixed,
    pack_unary,
    pack_varied,
    positions_of_ones,
    unpack_fixed,
    unpack_varied,
)
from fedcef.wire.reader import Reader, WireError

MAX_RICE = 31
GROUP = 128

_WINDOW = range(-4, 2)  # parameters tried, around floor(log2(dim / count)); low ones are for clusters
_GROUP_WINDOW = range(-2, 2)  # parameters tried for a group, around floor(log2(its mean gap))
_PARAMETER_BITS = 5
_AT_ONCE = 2**16  # gaps of a stack
_RICE = struct.Struct("<BI")  # parameter, bytes of the unary stream
_GROUPED = struct.Struct("<I")  # bytes of the unary stream


class Parameters(NamedTuple):
    """The best Rice parameters for each vector of a stack, and the bytes that its gaps then take."""

    nbytes: Tensor  # (...)
    chosen: Tensor  # (...), or (..., groups)


def best_parameter(gaps: Tensor, count: Tensor, dim: int) -> Parameters:
    """One parameter for all: the one in the window with the fewest bytes, the lowest on a tie.

    Gaps are (..., m), of which the first `count` (...) belong to entries and the others are zero.
    """
    tried = _around(_floor_log2(dim // count.clamp(min=1)), _WINDOW)
    count = count.unsqueeze(-1)
    sizes = _RICE.size + (count + _quotients(gaps, tried) + 7) // 8 + (count * tried + 7) // 8
    nbytes, which = sizes.min(-1, keepdim=True)
    return Parameters(nbytes.squeeze(-1), tried.gather(-1, which).squeeze(-1))


def best_group_parameters(gaps: Tensor, count: Tensor) -> Parameters:
    """A parameter for each group: the one in its window with the fewest bits, the lowest on a tie; shapes as above."""
    groups = -(-gaps.shape[-1] // GROUP)
    padding = groups * GROUP - gaps.shape[-1]
    grouped = torch.nn.functional.pad(gaps, (0, padding)).reshape(*gaps.shape[:-1], groups, GROUP)
    first = torch.arange(groups, device=gaps.device) * GROUP
    sizes = (count.unsqueeze(-1) - first).clamp(0, GROUP)  # (..., groups)
    tried = _around(_floor_log2(grouped.sum(-1) // sizes.clamp(min=1)), _GROUP_WINDOW)  # (..., groups, tried)
    bits, which = (_quotients(grouped, tried) + sizes.unsqueeze(-1) * tried).min(-1, keepdim=True)
    best = tried.gather(-1, which).squeeze(-1)
    low_bits = sizes * best
    unary_bits = count + (bits.squeeze(-1) - low_bits).sum(-1)
    parameter_bits = (count + GROUP - 1) // GROUP * _PARAMETER_BITS
    streams = [(bits + 7) // 8 for bits in (parameter_bits, unary_bits, low_bits.sum(-1))]
    return Parameters(_GROUPED.size + streams[0] + streams[1] + streams[2], best)


def rice_bytes(gaps: Integers, parameter: int) -> bytes:
    """Gaps (k,) with one Rice parameter for all."""
    unary = pack_unary(gaps >> parameter)
    low = pack_fixed(gaps & ((1 << parameter) - 1), parameter)
    return _RICE.pack(parameter, len(unary)) + unary + low


def grouped_bytes(gaps: Integers, parameters: Integers) -> bytes:
    """Gaps (k,) with a Rice parameter for each group."""
    widths = np.repeat(parameters, GROUP)[: len(gaps)]
    unary = pack_unary(gaps >> widths)
    low = pack_varied((gaps & ((1 << widths) - 1)).astype(np.uint64), widths)
    return _GROUPED.pack(len(unary)) + pack_fixed(parameters, _PARAMETER_BITS) + unary + low


def read_rice(reader: Reader, count: int, dim: int) -> Integers:
    """`count` ascending indices, which may still lie outside `dim`."""
    parameter, unary_size = reader.unpack(_RICE, "the Rice header")
    if parameter > MAX_RICE:
        raise WireError(f"Rice parameter {parameter} is not allowed; the largest is {MAX_RICE}.")
    ends = _read_unary(reader, unary_size, count, dim, parameter)
    low = reader.take(bytes_for(count * parameter), "the stream of low bits")
    # ends_j = j + (sum of the quotients up to j), and index_j = j + (sum of the gaps up to j)
    order = np.arange(count)
    ends -= order
    ends <<= parameter
    ends += order
    del order
    if parameter:
        ends += np.cumsum(unpack_fixed(low, count, parameter, "stream of low bits"), dtype=np.int64)
    return ends


def read_grouped(reader: Reader, count: int, dim: int) -> Integers:
    """The same from groups with parameters of their own."""
    (unary_size,) = reader.unpack(_GROUPED, "the header of grouped Rice codes")
    groups = -(-count // GROUP)
    coded = reader.take(bytes_for(groups * _PARAMETER_BITS), f"the Rice parameters of {groups} groups")
    parameters = unpack_fixed(coded, groups, _PARAMETER_BITS, "stream of Rice parameters").astype(np.int64)
    ends = _read_unary(reader, unary_size, count, dim, int(parameters.min(initial=MAX_RICE)))
    widths = np.repeat(parameters, GROUP)[:count]
    low = reader.take(bytes_for(int(widths.sum())), "the stream of low bits")

    gaps = np.diff(ends, prepend=-1) - 1  # the quotients
    del ends
    if (gaps > dim >> widths).any():  # before they are shifted, so that no sum can wrap around
        raise WireError(f"A gap between indices is larger than the vector's dimension {dim}.")
    gaps <<= widths
    gaps += unpack_varied(low, widths, "stream of low bits")
    if count and float(gaps.sum(dtype=np.float64)) > dim:
        raise WireError(f"The gaps between indices add up to more than the vector's dimension {dim}.")
    gaps += 1
    np.cumsum(gaps, out=gaps)
    gaps -= 1
    return gaps


def _read_unary(reader: Reader, size: int, count: int, dim: int, parameter: int) -> Integers:
    """Where the numbers of a unary stream end; no Rice parameter that goes with it is below `parameter`."""
    longest = bytes_for(count + (dim - count >> parameter))  # also keeps all sums below 2^63
    if size > longest:
        raise WireError(f"The unary stream has {size} bytes; {count} of {dim} indices need no more than {longest}.")
    ends = positions_of_ones(reader.take(size, "the unary stream"), count, "unary stream")
    if size != bytes_for(int(ends[-1]) + 1 if count else 0):
        raise WireError(f"The unary stream of {size} bytes goes on after its last number.")
    return ends


def _around(centre: Tensor, window: range) -> Tensor:
    """The parameters that are tried around (...), ascending: (..., tried)."""
    offsets = torch.arange(window.start, window.stop, device=centre.device)
    return (centre.unsqueeze(-1) + offsets).clamp(0, MAX_RICE)


def _quotients(gaps: Tensor, parameters: Tensor) -> Tensor:
    """Σ_j ⌊g_j / 2^b⌋ over gaps (..., m) for each parameter b: (..., tried); many gaps are shifted by one at a time."""
    if gaps.numel() <= _AT_ONCE:
        return (gaps.unsqueeze(-2) >> parameters.unsqueeze(-1)).sum(-1)
    return torch.stack([(gaps >> b).sum(-1) for b in parameters.unsqueeze(-1).unbind(-2)], dim=-1)


def _floor_log2(numbers: Tensor) -> Tensor:
    """⌊log₂ n⌋ in exact integers, 0 for n = 0; n is below 2^32."""
    return torch.frexp(numbers.double()).exponent.clamp(min=1) - 1
