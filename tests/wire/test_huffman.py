"""Huffman codes: optimal, the same for a stack as for its rows, and decoded whatever their lengths."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcef.wire.codes.huffman import code_lengths, codewords, decode_symbols, encode_symbols
from fedcef.wire.reader import WireError

FIBONACCI = [1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987]


def optimal_bits(counts: list[int]) -> int:
    """The least bits that any prefix code takes."""
    heap = [count for count in counts if count]
    if len(heap) == 1:
        return heap[0]
    heapq.heapify(heap)
    total = 0
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        total += joined
        heapq.heappush(heap, joined)
    return total


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**32)), min_size=2, max_size=16))
def test_lengths_are_optimal(counts: list[int]) -> None:
    lengths = code_lengths(torch.tensor(counts)).tolist()
    assert sum(n * length for n, length in zip(counts, lengths, strict=True)) == optimal_bits(counts)
    assert all((n > 0) == (length > 0) for n, length in zip(counts, lengths, strict=True))
    if sum(n > 0 for n in counts) > 1:
        assert sum(2.0**-length for length in lengths if length) == 1


def test_a_stack_is_coded_row_by_row() -> None:
    counts = torch.randint(0, 9, (3, 4, 16), generator=torch.Generator().manual_seed(0))
    stacked = code_lengths(counts)
    assert all(torch.equal(code_lengths(counts[i, j]), stacked[i, j]) for i in range(3) for j in range(4))


def test_ties_are_broken_as_the_page_says() -> None:
    # 0 and 1 are joined under 0, then 2 and 3 (weight 1 each) under 2, then both
    assert code_lengths(torch.tensor([1, 1, 1, 1])).tolist() == [2, 2, 2, 2]
    # 0 and 1 make node 0 of weight 2, which comes before 2 of the same weight: they are joined, 3 is left
    assert code_lengths(torch.tensor([1, 1, 2, 2])).tolist() == [3, 3, 2, 1]


def test_codewords_are_canonical() -> None:
    assert codewords([2, 0, 1, 3, 3]) == [0b01, 0, 0b0, 0b011, 0b111]  # 10, –, 0, 110, 111, first bit lowest


@pytest.mark.parametrize("count", [1, 3, 4, 5, 30_000])
@pytest.mark.parametrize("counts", [FIBONACCI, [1] * 16, [0, 7, 1], [0, 0, 5], [1000, 1, 1]])
def test_round_trip(counts: list[int], count: int) -> None:
    shares = np.array(counts) / sum(counts)
    symbols = np.random.default_rng(0).choice(len(counts), size=count, p=shares).astype(np.uint8)
    lengths = code_lengths(torch.tensor(counts)).tolist()
    data = encode_symbols(symbols, lengths)
    assert len(data) == (sum(lengths[symbol] for symbol in symbols.tolist()) + 7) // 8
    assert np.array_equal(decode_symbols(memoryview(data), count, lengths), symbols)
    for wrong, size in ((data[:-1], count), (data + b"\0", count), (data, count + 9)):
        with pytest.raises(WireError):
            decode_symbols(memoryview(wrong), size, lengths)


def test_the_longest_codewords() -> None:
    lengths = code_lengths(torch.tensor(FIBONACCI)).tolist()
    assert max(lengths) == 15
    symbols = np.zeros(40_000, dtype=np.uint8)  # all of them 15 bits long: many segments
    assert np.array_equal(decode_symbols(memoryview(encode_symbols(symbols, lengths)), 40_000, lengths), symbols)
