"""Small symbols, such as the numbers of levels: packed in a fixed width, or Huffman-coded where that is shorter.

Of small alphabets several symbols together get a codeword, so that one may take less than a bit.

`plan` computes sizes with integer tensor operations of static shape, for one vector or a stack, on any device; the
encoder follows the same plan, so the two cannot disagree.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcef.wire.codes.bits import bytes_for, pack_fixed, unpack_fixed
from fedcef.wire.codes.huffman import MAX_SYMBOLS, code_lengths, decode_symbols, encode_symbols
from fedcef.wire.reader import Reader, WireError
from fedcef.wire.stacks import for_each_vector, in_pieces

PACKED, HUFFMAN = range(2)

_CODING = struct.Struct("<B")
_LENGTH = struct.Struct("<I")  # bytes of the Huffman stream
_LANES = 32
_TRITS = np.array([1, 3, 9, 27, 81], dtype=np.uint8)


class Alphabet(NamedTuple):
    """The symbols 0 to size - 1 and the bits that one takes when packed; width 0: five symbols a byte, in base 3."""

    size: int
    width: int

    def packed_nbytes(self, count: int) -> int:
        """The bytes of so many packed symbols."""
        return bytes_for(count * self.width) if self.width else (count + 4) // 5

    @property
    def together(self) -> int:
        """How many symbols share a codeword: the most of which there are no more than 16 combinations."""
        return {2: 4, 3: 2, 4: 2}.get(self.size, 1)

    @property
    def tuples(self) -> int:
        """The number of combinations."""
        return int(self.size**self.together)


class Plan(NamedTuple):
    """How the symbols of each vector of a stack (...) are coded."""

    nbytes: Tensor
    coding: Tensor
    lengths: Tensor  # (..., tuples), of the Huffman code; only where the alphabet has one


def plan(symbols: Tensor, alphabet: Alphabet) -> Plan:
    """Symbols (..., k) -> sizes and codings (...)."""
    packed = for_each_vector(alphabet.packed_nbytes(symbols.shape[-1]), symbols)
    if alphabet.size > MAX_SYMBOLS:
        return Plan(_CODING.size + packed, torch.full_like(packed, PACKED), packed)
    (counts,) = in_pieces(lambda some: [_counts(_combined(some, alphabet), alphabet.tuples)], symbols)
    lengths = code_lengths(counts)
    stream = ((counts * lengths).sum(-1) + 7) // 8
    huffman = _lengths_size(alphabet) + _LENGTH.size + stream
    coding = torch.where(huffman < packed, HUFFMAN, PACKED)
    return Plan(_CODING.size + torch.minimum(huffman, packed), coding, lengths)


def encode_symbols_of(symbols: Tensor, alphabet: Alphabet) -> bytes:
    """(k,) -> the coding's number and the coded symbols."""
    if symbols.numel() and int(symbols.max()) >= alphabet.size:
        raise WireError(f"Code {int(symbols.max())} is none of the {alphabet.size} that there are levels for.")
    choice = plan(symbols, alphabet)
    if int(choice.coding) == PACKED:
        return _CODING.pack(PACKED) + _pack(symbols.detach().cpu().contiguous().numpy(), alphabet)
    lengths = [int(length) for length in choice.lengths.tolist()]
    stream = encode_symbols(_combined(symbols, alphabet).detach().cpu().contiguous().numpy(), lengths)
    return _CODING.pack(HUFFMAN) + pack_fixed(np.array(lengths), 4) + _LENGTH.pack(len(stream)) + stream


def read_symbols(reader: Reader, count: int, alphabet: Alphabet) -> Tensor:
    """`count` symbols -> (count,) uint8, each below the alphabet's size."""
    (coding,) = reader.unpack(_CODING, "the coding of the levels' codes")
    if coding == PACKED:
        return torch.from_numpy(_read_packed(reader, count, alphabet))
    if coding != HUFFMAN or alphabet.size > MAX_SYMBOLS:
        allowed = "0 (packed)" + (" and 1 (Huffman)" if alphabet.size <= MAX_SYMBOLS else "")
        raise WireError(f"Unknown coding {coding} of {alphabet.size} codes; allowed are {allowed}.")
    lengths_bytes = reader.take(_lengths_size(alphabet), "the Huffman code's lengths")
    lengths = unpack_fixed(lengths_bytes, alphabet.tuples, 4, "list of code lengths").tolist()
    (size,) = reader.unpack(_LENGTH, "the length of the Huffman stream")
    together = alphabet.together
    combined = decode_symbols(reader.take(size, "the Huffman stream"), -(-count // together), lengths)
    if together == 1:
        return torch.from_numpy(combined)
    digits = np.arange(alphabet.tuples, dtype=np.uint8)[:, None] // alphabet.size ** np.arange(together) % alphabet.size
    symbols = digits.astype(np.uint8)[combined].ravel()
    _require_no_more(symbols, count)
    return torch.from_numpy(symbols[:count].copy())


def _counts(symbols: Tensor, size: int) -> Tensor:
    """How often each symbol occurs: (..., k) -> (..., size).

    Neighbours are counted apart and summed at the end: on a GPU, threads that add to the same place wait in line.
    """
    lane = torch.arange(symbols.shape[-1], device=symbols.device) % _LANES
    index = symbols + lane * size
    zeros = torch.zeros((*symbols.shape[:-1], _LANES * size), dtype=torch.int64, device=symbols.device)
    ones = torch.ones((), dtype=torch.int64, device=symbols.device).expand(index.shape)
    return zeros.scatter_add(-1, index, ones).reshape(*symbols.shape[:-1], _LANES, size).sum(-2)


def _combined(symbols: Tensor, alphabet: Alphabet) -> Tensor:
    """Tuples of symbols as numbers, the first symbol lowest, missing ones 0: (..., k) -> (..., ⌈k / together⌉)."""
    together = alphabet.together
    if together == 1:
        return symbols
    padded = torch.nn.functional.pad(symbols, (0, -symbols.shape[-1] % together))
    digits = padded.reshape(*symbols.shape[:-1], -1, together).unbind(-1)
    combined = digits[0]
    for position in range(1, together):
        combined = combined + digits[position] * alphabet.size**position
    return combined


def _require_no_more(symbols: NDArray[np.uint8], count: int) -> None:
    if symbols[count:].any():
        raise WireError(f"The stream of codes has non-zero padding after its {count} codes; padding must be zero.")


def _lengths_size(alphabet: Alphabet) -> int:
    return bytes_for(4 * alphabet.tuples)


def _pack(symbols: NDArray[np.uint8], alphabet: Alphabet) -> bytes:
    if alphabet.width == 8:
        return symbols.tobytes()
    if alphabet.width:
        bits = np.unpackbits(symbols[:, None], axis=1, count=alphabet.width, bitorder="little")
        return np.packbits(bits, bitorder="little").tobytes()
    trits = np.zeros(5 * alphabet.packed_nbytes(len(symbols)), dtype=np.uint8)
    trits[: len(symbols)] = symbols
    packed: bytes = (trits.reshape(-1, 5) * _TRITS).sum(1, dtype=np.uint8).tobytes()
    return packed


def _read_packed(reader: Reader, count: int, alphabet: Alphabet) -> NDArray[np.uint8]:
    data = reader.take(alphabet.packed_nbytes(count), "the levels' codes")
    if alphabet.width:
        symbols = unpack_fixed(data, count, alphabet.width, "stream of codes").astype(np.uint8)
    else:
        octets = np.frombuffer(data, dtype=np.uint8)
        if octets.size and int(octets.max()) >= 3**5:
            raise WireError(f"Byte {int(octets.max())} does not stand for five codes in base 3; the largest is 242.")
        trits = (octets[:, None] // _TRITS % 3).ravel()
        _require_no_more(trits, count)
        symbols = trits[:count].copy()
    if symbols.size and int(symbols.max()) >= alphabet.size:
        raise WireError(f"Code {int(symbols.max())} is none of the {alphabet.size} that there are levels for.")
    return symbols
