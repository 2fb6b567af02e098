"""Canonical Huffman codes over at most 16 symbols.

A code is given by its lengths: symbols take ascending codewords in the order of (length, symbol), as in RFC 1951.
Lengths are computed with integer tensor operations of static shape, for a stack at once; bits by NumPy.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.wire.codes.bits import bytes_for, pack_varied, require_zero_padding
from fedcef.wire.reader import WireError

MAX_SYMBOLS = 16
MAX_LENGTH = 15
_ABSENT = 2**62
_SEGMENT = 1 << 12  # bytes of a stream decoded at a time: their tables stay in the cache and bound the memory


def code_lengths(counts: Tensor) -> Tensor:
    """How often each symbol occurs, (..., n) -> the length of its codeword, (..., n); 0 for one that does not occur.

    Merges the two nodes with the smallest (weight, number) until one is left; a merged node keeps the number of the
    first.  A symbol that is alone gets a codeword of one bit.

    A set of symbols, and all their lengths, are one number each, with four bits for a symbol.
    """
    number = torch.arange(counts.shape[-1], device=counts.device)
    key = torch.where(counts > 0, counts * MAX_SYMBOLS + number, _ABSENT)  # of each node: weight and number in one
    members = (torch.ones_like(number) << 4 * number).expand(counts.shape)  # of each node
    lengths = torch.zeros_like(key[..., :1])
    for _ in range(counts.shape[-1] - 1):
        first, a = key.min(-1, keepdim=True)
        key = key.scatter(-1, a, _ABSENT)
        second, b = key.min(-1, keepdim=True)
        merge = second < _ABSENT
        b = torch.where(merge, b, a)
        merged = members.gather(-1, a) | members.gather(-1, b)
        lengths = lengths + merged * merge
        members = members.scatter(-1, a, merged)
        key = key.scatter(-1, b, _ABSENT).scatter(-1, a, torch.where(merge, first + second - b, first))
    return torch.where(counts > 0, (lengths >> 4 * number & MAX_LENGTH).clamp(min=1), 0)


def codewords(lengths: list[int]) -> list[int]:
    """The canonical codewords, each with its first bit lowest."""
    words, word, previous = [0] * len(lengths), 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        word <<= length - previous
        words[symbol] = int(f"{word:0{length}b}"[::-1], 2)
        word, previous = word + 1, length
    return words


def encode_symbols(symbols: NDArray[np.uint8], lengths: list[int]) -> bytes:
    """The codewords of the symbols; they are looked up two at a time, which halves the work."""
    words = np.array([*codewords(lengths), 0], dtype=np.uint64)
    widths = np.array([*lengths, 0], dtype=np.int64)
    nothing = len(lengths)  # follows the last symbol of an odd number
    pairs = np.full(-(-len(symbols) // 2) * 2, nothing, dtype=np.uint16)
    pairs[: len(symbols)] = symbols
    pairs = pairs[::2] * (nothing + 1) + pairs[1::2]
    pair_words = (words[:, None] | words << widths[:, None].astype(np.uint64)).ravel()
    pair_widths = (widths[:, None] + widths).ravel()
    return pack_varied(pair_words.take(pairs), pair_widths.take(pairs))


def decode_symbols(data: memoryview, count: int, lengths: list[int]) -> NDArray[np.uint8]:
    """`count` symbols from exactly the bytes that they take."""
    _require_complete(lengths)
    if count > 8 * len(data):  # a codeword has at least one bit
        raise WireError(f"A stream of {len(data)} bytes is too short for {count} Huffman codewords.")
    if sum(lengths) == 1:  # a symbol that is alone; no codeword begins with a one
        if any(data):
            raise WireError("The Huffman stream of a single symbol holds one-bits.")
        if len(data) != bytes_for(count):
            raise WireError(
                f"The Huffman stream has {len(data)} bytes where its {count} codewords take {bytes_for(count)}."
            )
        return np.full(count, lengths.index(1), dtype=np.uint8)
    table = _decoding_table(tuple(lengths))
    symbols = np.empty(count, dtype=np.uint8)
    stream = np.frombuffer(data, dtype=np.uint8)
    done, bit = 0, 0
    while done < count:
        start = bit >> 3
        if start >= len(data):
            raise WireError(f"The Huffman stream ends after {done} of {count} codewords.")
        found, bit = _decode_segment(stream[start : start + _SEGMENT + 2], bit - 8 * start, count - done, table)
        bit += 8 * start
        symbols[done : done + len(found)] = found
        done += len(found)
    if bytes_for(bit) != len(data):
        raise WireError(f"The Huffman stream has {len(data)} bytes where its {count} codewords take {bytes_for(bit)}.")
    require_zero_padding(data, bit, "Huffman stream")
    return symbols


def _decode_segment(
    data: NDArray[np.uint8], bit: int, count: int, table: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], int]:
    """At most `count` symbols that begin in the first bytes of `data`, from `bit` on, and the bit after them."""
    padded = np.zeros(min(len(data), _SEGMENT) + 2, dtype=np.uint32)
    padded[: len(data)] = data
    windows = padded[:-2] | padded[1:-1] << 8 | padded[2:] << 16  # a codeword that begins in a byte ends in these
    index = (windows[:, None] >> np.arange(8, dtype=np.uint32)) & (len(table) - 1)
    end = index.size
    entries = np.zeros(end + 4 * MAX_LENGTH, dtype=np.uint8)  # of the codeword that would begin at each bit
    table.take(index.ravel(), out=entries[:end])
    one = entries >> 4  # bits to the next codeword: a chain, to be followed by hand, but four at a time
    position = np.arange(end, dtype=np.int32)
    two = one.copy()
    two[:end] += one.take(position + one[:end])
    four = two.copy()
    four[:end] += two.take(position + two[:end])
    hops = four.tobytes()
    fourths: list[int] = []
    while bit < end and 4 * len(fourths) < count:
        fourths.append(bit)
        bit += hops[bit]
    starts = np.empty((len(fourths), 4), dtype=np.int64)
    starts[:, 0] = fourths
    for column in range(3):
        starts[:, column + 1] = starts[:, column] + one[starts[:, column]]
    found = starts[starts < end][:count]  # row by row, so in order; beyond the end, the next segment goes on
    last = int(found[-1])
    return entries[found] & np.uint8(15), last + int(one[last])


@lru_cache(maxsize=8)
def _decoding_table(lengths: tuple[int, ...]) -> NDArray[np.uint8]:
    """For each possible next bits, as many as the longest codeword has: 16 × its length + its symbol.

    Remembered: small payloads of a relay may share a code, and making its table takes longer than reading them.
    """
    longest = max(lengths, default=0)
    table = np.zeros(1 << longest, dtype=np.uint8)
    for symbol, (word, length) in enumerate(zip(codewords(list(lengths)), lengths, strict=True)):
        if length:
            table[word :: 1 << length] = 16 * length + symbol
    return table


def _require_complete(lengths: list[int]) -> None:
    filled = sum(1 << (MAX_LENGTH - length) for length in lengths if length)
    if filled != 1 << MAX_LENGTH and sum(lengths) != 1:
        raise WireError(f"Lengths {lengths} are not those of a complete Huffman code.")
