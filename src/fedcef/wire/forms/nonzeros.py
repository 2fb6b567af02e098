"""A vector sent without loss in its smallest form: its non-zero entries, or all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.wire.codes.indices import gaps_of_mask
from fedcef.wire.context import Context
from fedcef.wire.forms.dense import Dense
from fedcef.wire.forms.sparse import CHECKSUM, Sparse, sparse_nbytes
from fedcef.wire.payload import Payload
from fedcef.wire.values.values import Floats, largest_of


@dataclass(frozen=True, eq=False)
class Nonzeros(Payload):
    """A negative zero counts as zero and is sent as +0.0, so that the decoded value does not depend on the form."""

    vector: Tensor  # (..., p)

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The length of the vector."""
        return self.vector.shape[-1]

    def dense(self) -> Tensor:
        """The vector, without negative zeros."""
        return Floats(self._positive_zeros()).dense()

    def nbytes(self) -> Tensor:
        """The size of the sparse or of the dense form, whichever is smaller."""
        return self.nbytes_given(None)

    def nbytes_given(self, context: Context | None) -> Tensor:
        """The size of the sparse form, perhaps coded with the context, or of the dense one, whichever is smaller."""
        dense = Dense(self.vector).nbytes()
        if self.vector.ndim == 1 and self.vector.device.type == "cpu":  # nobody waits for a count
            return torch.minimum(self._sparse().nbytes_given(context), dense)
        mask = self.vector != 0
        count = mask.sum(-1)
        values = count * self.vector.dtype.itemsize
        plain = torch.minimum(sparse_nbytes(values, gaps_of_mask(mask), count, self.dim), dense)
        if context is None:
            return plain
        context.require_dim(self.dim)
        gaps = gaps_of_mask(context.in_order(mask))
        return torch.minimum(plain, CHECKSUM.size + sparse_nbytes(values, gaps, count, self.dim))

    def paper_nbytes(self) -> Tensor:
        """8 bytes a non-zero entry, or 4 for each entry if that is less."""
        return torch.minimum(8 * (self.vector != 0).sum(-1), Dense(self.vector).paper_nbytes())

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        return [Nonzeros(row) for row in self.vector.unbind()]

    def encode(self) -> bytes:
        """The bytes of a `Sparse` or `Dense`, which is also what they decode to; `Dense` on a tie."""
        return self.encode_given(None)

    def encode_given(self, context: Context | None) -> bytes:
        """The same with a `Sparse` that may be coded with the context."""
        dense = Dense(self._positive_zeros())
        if self.vector.ndim != 1:
            return dense.encode()  # says what is wrong
        sparse = self._sparse()
        shorter = sparse.nbytes_given(context) < dense.nbytes()
        return sparse.encode_given(context) if shorter else dense.encode()

    def _sparse(self) -> Sparse:
        indices = self.vector.nonzero().squeeze(-1)
        return Sparse(self.vector[indices], indices, self.dim)

    def largest(self) -> float:
        """The largest magnitude of the entries."""
        return largest_of(self.vector)

    def _positive_zeros(self) -> Tensor:
        return self.vector.masked_fill(self.vector == 0, 0.0)
