"""PowerSGD: each weight matrix as a product of two thin ones.

Vogels, Karimireddy, Jaggi (2019, arXiv 1905.13727).  For a matrix M (n × m) and a start Q (m × r):

    repeat:   P = orthonormal(M Q);   Q = Mᵀ P              send P and Q; C(M) = P Qᵀ = P Pᵀ M, a projection

Theirs is for the mean over clients and starts from the last round's Q.  Here it is a compressor of one client's vector,
without memory: the start is drawn anew in each round, the same for all clients.  With a normal start
E|C(M) - M|² <= (1 - r/min(n, m))|M|²: a singular direction has the larger a share in the span of M Q, the larger its
singular value, so the span holds no less of M than r directions at random would.  (For r = 1 that is Chebyshev's sum
inequality; for more we rely on tests/compressors/test_low_rank.py.)  Equal singular values attain it.

Tensors of two or more axes are matrices, (out, rest).  Vectors, and matrices that two factors would not shorten, are
sent as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcef.compressors.blocks import divided
from fedcef.compressors.compressor import Compressor
from fedcef.compressors.orthonormal import orthonormal
from fedcef.core.layout import Layout
from fedcef.core.rng import Key, normal
from fedcef.wire import LowRank, Payload


@dataclass(frozen=True, eq=False, kw_only=True)
class PowerSGD(Compressor):
    """Every weight matrix as a product of two thin ones (PowerSGD); vectors are sent uncompressed."""

    rank: Annotated[int, Field(ge=1, le=255)] = 4
    """The number of columns of the two factors."""
    iterations: Annotated[int, Field(ge=1, le=10)] = 1
    """Power iterations; a second one comes closer to the best approximation."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """The shapes of the tensors; `fit` takes those of the model.  Without them the vector is sent as it is."""

    def fit(self, layout: Layout) -> PowerSGD:
        """The compressor for tensors of these shapes."""
        return replace(self, shapes=layout.shapes)

    def compress(self, x: Tensor, key: Key) -> Payload:
        """Two factors of each matrix, and the other stretches as they are."""
        left, right, rest = [x[..., :0]], [x[..., :0]], [x[..., :0]]
        sent = self._sent(x.shape[-1])
        sizes = [shape if isinstance(shape, int) else prod(shape) for shape in sent]
        for number, (shape, stretch) in enumerate(zip(sent, torch.split(x, sizes, dim=-1), strict=True)):
            if isinstance(shape, int):
                rest.append(stretch)
                continue
            thin, wide = self._factors(stretch.reshape(*x.shape[:-1], *shape), key.of_part(number))
            left.append(thin.flatten(-2))
            right.append(wide.flatten(-2))
        thin, wide, plain = (torch.cat(part, dim=-1).to(torch.float32) for part in (left, right, rest))
        return LowRank(thin, wide, plain, tuple(sent), self.rank)

    def contraction(self, dim: int) -> float:
        """1 - r/min(n, m) of the worst matrix; 0 if none is sent as factors."""
        matrices = [shape for shape in self._sent(dim) if not isinstance(shape, int)]
        return max((1 - self.rank / min(shape) for shape in matrices), default=0.0)

    def _sent(self, dim: int) -> list[tuple[int, int] | int]:
        """The matrices that are sent as factors, and the lengths of what is not, in their order."""
        sent: list[tuple[int, int] | int] = []
        for shape in self.shapes or ((dim,),):
            n, m = shape[0] if shape else 1, prod(shape[1:])
            sent.append((n, m) if len(shape) > 1 and self.rank * (n + m) < n * m else n * m)
        return sent

    def _factors(self, matrix: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """(..., n, m) -> (..., n, r), (..., m, r)."""
        size = matrix.abs().amax((-2, -1), keepdim=True)
        unit = divided(matrix, size)
        m = matrix.shape[-1]
        right = normal(key, m * self.rank).reshape(m, self.rank).to(matrix.dtype)
        for _ in range(self.iterations):
            left = orthonormal(unit @ right)
            right = unit.mT @ left
        return left, right * size
