"""Top-k of the discrete cosine transform: what varies slowly within a tile of a matrix takes few coefficients.

The extraction of DeMo (Peng, Quesnelle, Kingma, arXiv 2411.19870).  A tensor is a matrix of its first axis and all
others, or one row; the sides of its tiles are the largest divisors of its lengths that are no more than `chunk`.  For
every tile X it is Y = B_h X B_wᵀ with the orthonormal DCT-II

    B[k, n] = √(2/N) cos(π (2n + 1) k / (2N)),   the row k = 0 divided by √2

and of each tile the `kept` largest coefficients are sent.  B is orthonormal, so that dropping coefficients loses what
Top-k loses: q² = 1 - (1 - d²)k/n for the worst tile of n.  A length that is a prime above `chunk` has tiles of one
entry, all of which are kept.

What is sent is a sparse vector of coefficients, tile after tile, and the geometry of the tiles, 16 bytes a tensor, so
that whoever receives it needs nothing else.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedcef.compressors.blocks import Block
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.sparsifiers import largest
from fedcef.compressors.value_coders import ValueCoder, coded, coding_error
from fedcef.core.layout import Layout
from fedcef.core.parts import BY_ENGINE
from fedcef.core.ranges import Count
from fedcef.core.rng import Key
from fedcef.wire import HEAD, Head, Payload, Reader, Sparse, WireError, as_values, encode_head, register_form

Geometry = tuple[tuple[int, int, int, int], ...]
"""For every tensor, in order: rows, columns, and the rows and columns of a tile."""

FORM = 192
_COUNT, _TENSOR = struct.Struct("<I"), struct.Struct("<IIII")


@dataclass(frozen=True, eq=False)
class Cosines(Payload):
    """Coefficients of the tiles of a vector's tensors."""

    coefficients: Sparse
    geometry: Geometry

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The length of the vector, and of its coefficients."""
        return self.coefficients.dim

    def dense(self) -> Tensor:
        """The tiles, transformed back."""
        return from_cosines(self.coefficients.dense(), self.geometry)

    def nbytes(self) -> Tensor:
        """The coefficients, the geometry and the name of the form's package."""
        return self.coefficients.nbytes() + len(PACKAGE) + _COUNT.size + _TENSOR.size * len(self.geometry)

    def paper_nbytes(self) -> Tensor:
        """8 bytes a coefficient with its index."""
        return self.coefficients.paper_nbytes()

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        return [Cosines(row, self.geometry) for row in self.coefficients.rows() if isinstance(row, Sparse)]

    def encode(self) -> bytes:
        """The head, the name of the package, the geometry and the coefficients."""
        values = as_values(self.coefficients.values)
        head = encode_head(FORM, values.code, self.dim, self.coefficients.indices.shape[:-1])
        tensors = b"".join(_TENSOR.pack(*tensor) for tensor in self.geometry)
        rest = self.coefficients.encode()[HEAD.size :]
        return head + PACKAGE + _COUNT.pack(len(self.geometry)) + tensors + rest

    def largest(self) -> float:
        """The largest magnitude of the coefficients."""
        return self.coefficients.largest()

    @classmethod
    def read(cls, reader: Reader, head: Head) -> Cosines:
        """What follows the package's name."""
        (count,) = reader.unpack(_COUNT, "the number of transformed tensors")
        fields = reader.take(_TENSOR.size * count, f"the geometry of {count} tensors")
        geometry = tuple(_TENSOR.iter_unpack(fields))
        if sum(rows * columns for rows, columns, _, _ in geometry) != head.dim:
            raise WireError(f"The geometry of the tiles is not that of {head.dim} entries.")
        if not all(0 < h <= MAX_CHUNK and 0 < w <= MAX_CHUNK and r % h == c % w == 0 for r, c, h, w in geometry):
            raise WireError(f"The tiles of a transform must divide their tensors and be no longer than {MAX_CHUNK}.")
        return cls(Sparse.read(reader, head), geometry)


PACKAGE = register_form(FORM, Cosines.read, package="fedcef.compressors.dct")
MAX_CHUNK = 2**12


@dataclass(frozen=True, eq=False, kw_only=True)
class DCTTopK(Compressor):
    """The largest coefficients of the cosine transform of every tile of every matrix."""

    chunk: Count = 64
    """The longest side of a tile."""
    kept: Count = 32
    """How many coefficients of a tile are kept."""
    values: ValueCoder = "native"
    """How they travel; "native" is the type in which the algorithm computes."""
    block: Block = 256
    """How many kept values share a scale, if they travel as multiples of one; 0: all."""
    geometry: Geometry = field(default=(), metadata=BY_ENGINE)
    """Of the tensors; `fit` makes it.  Without it a vector is one row."""

    def fit(self, layout: Layout) -> DCTTopK:
        """The compressor for these tensors."""
        return replace(self, geometry=tuple(self._tiles(shape) for shape in layout.shapes))

    def _tiles(self, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
        rows, columns = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))
        return rows, columns, divisor(rows, self.chunk), divisor(columns, self.chunk)

    def compress(self, x: Tensor, key: Key) -> Payload:
        """The largest coefficients of every tile, and where they are."""
        geometry = self.geometry or (self._tiles((x.shape[-1],)),)
        y, start, kept = to_cosines(x, geometry), 0, []
        for rows, columns, h, w in geometry:
            tiles = y[..., start : start + rows * columns].reshape(*y.shape[:-1], -1, h * w)
            starts = torch.arange(start, start + rows * columns, h * w, device=x.device).unsqueeze(-1)
            kept.append((starts + largest(tiles, min(self.kept, h * w))).flatten(-2))
            start += rows * columns
        indices = torch.cat(kept, dim=-1)
        values = coded(y.gather(-1, indices), self.values, self.block)
        return Cosines(Sparse(values, indices, x.shape[-1]), geometry)

    def contraction(self, dim: int) -> float:
        """That of the worst tile."""
        geometry = self.geometry or (self._tiles((dim,)),)
        shares = [(min(self.kept, h * w), h * w, rows * columns // (h * w)) for rows, columns, h, w in geometry]
        error = coding_error(self.values, sum(kept * tiles for kept, _, tiles in shares), self.block)
        return max(1 - (1 - error) * kept / size for kept, size, _ in shares)


def divisor(length: int, chunk: int) -> int:
    """The largest divisor of a length that is no more than `chunk`."""
    return next(d for d in range(min(length, chunk), 0, -1) if length % d == 0)


def cosines(length: int, like: Tensor) -> Tensor:
    """The orthonormal DCT-II of this length as a matrix, in the type and on the device of another tensor."""
    n = torch.arange(length, dtype=torch.float64, device=like.device)
    matrix = torch.cos(math.pi / (2 * length) * (2 * n + 1) * n.unsqueeze(-1)) * math.sqrt(2 / length)
    matrix[:1].mul_(math.sqrt(0.5))
    return matrix.to(like.dtype)


def to_cosines(x: Tensor, geometry: Geometry) -> Tensor:
    """(..., p) -> (..., p): the coefficients, tensor after tensor and tile after tile."""
    if x.ndim > 1:  # products of stacks may be left to another kernel, and one client must send the bits of many
        return torch.stack([to_cosines(row, geometry) for row in x])
    parts, start = [], 0
    for rows, columns, h, w in geometry:
        matrix = x[..., start : start + rows * columns].reshape(*x.shape[:-1], rows // h, h, columns // w, w)
        tiles = cosines(h, x) @ matrix.transpose(-2, -3) @ cosines(w, x).mT
        parts.append(tiles.flatten(-4))
        start += rows * columns
    return torch.cat(parts, dim=-1)


def from_cosines(y: Tensor, geometry: Geometry) -> Tensor:
    """`to_cosines` undone."""
    if y.ndim > 1:
        return torch.stack([from_cosines(row, geometry) for row in y])
    parts, start = [], 0
    for rows, columns, h, w in geometry:
        tiles = y[..., start : start + rows * columns].reshape(*y.shape[:-1], rows // h, columns // w, h, w)
        matrix = (cosines(h, y).mT @ tiles @ cosines(w, y)).transpose(-2, -3)
        parts.append(matrix.flatten(-4))
        start += rows * columns
    return torch.cat(parts, dim=-1)
