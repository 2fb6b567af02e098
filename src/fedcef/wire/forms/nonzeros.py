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
from fedcef.wire.stacks import in_pieces
from fedcef.wire.values.values import Floats, largest_of

_PATTERNS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class Nonzeros(Payload):
    """A negative zero counts as zero and is sent as +0.0, so that the decoded value does not depend on the form."""

    vector: Tensor  # (..., p)

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The length of the vector."""
        return self.vector.shape[-1]

    @property
    def lead(self) -> torch.Size:
        """Those of the vector."""
        return self.vector.shape[:-1]

    def dense(self) -> Tensor:
        """The vector, without negative zeros."""
        return Floats(self._as_sent()).dense()

    def nbytes(self) -> Tensor:
        """The size of the sparse or of the dense form, whichever is smaller."""
        return self.nbytes_given(None)

    def nbytes_given(self, context: Context | None) -> Tensor:
        """The size of the sparse form, perhaps coded with the context, or of the dense one, whichever is smaller."""
        dense = Dense(self.vector).nbytes()
        if self.vector.ndim == 1 and self.vector.device.type == "cpu":  # nobody waits for a count
            return torch.minimum(self._sparse().nbytes_given(context), dense)
        mask = self._mask()
        plain = torch.minimum(self._sparse_nbytes(mask), dense)
        if context is None:
            return plain
        context.require_dim(self.dim)
        return torch.minimum(plain, CHECKSUM.size + self._sparse_nbytes(context.in_order(mask)))

    def paper_nbytes(self) -> Tensor:
        """8 bytes an entry that is sent, or 4 for each entry if that is less."""
        return torch.minimum(8 * self._mask().sum(-1), Dense(self.vector).paper_nbytes())

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        return [type(self)(row) for row in self.vector.unbind()]

    def encode(self) -> bytes:
        """The bytes of a `Sparse` or `Dense`, which is also what they decode to; `Dense` on a tie."""
        return self.encode_given(None)

    def encode_given(self, context: Context | None) -> bytes:
        """The same with a `Sparse` that may be coded with the context."""
        dense = Dense(self._as_sent())
        if self.vector.ndim != 1:
            return dense.encode()  # says what is wrong
        sparse = self._sparse()
        shorter = sparse.nbytes_given(context) < dense.nbytes()
        return sparse.encode_given(context) if shorter else dense.encode()

    def _sparse_nbytes(self, mask: Tensor) -> Tensor:
        """The size of a sparse form with entries of the vector's type where the mask (..., p) says."""

        def compute(mask: Tensor) -> list[Tensor]:
            count = mask.sum(-1)
            return [sparse_nbytes(count * self.vector.dtype.itemsize, gaps_of_mask(mask), count, self.dim)]

        return in_pieces(compute, mask)[0]

    def _sparse(self) -> Sparse:
        indices = self._mask().nonzero().squeeze(-1)
        return Sparse(self.vector[indices], indices, self.dim)

    def largest(self) -> float:
        """The largest magnitude of the entries."""
        return largest_of(self.vector)

    def _mask(self) -> Tensor:
        """Which entries are sent."""
        return self.vector != 0

    def _as_sent(self) -> Tensor:
        """All entries as they arrive."""
        return self.vector.masked_fill(self.vector == 0, 0.0)


@dataclass(frozen=True, eq=False)
class EveryBit(Nonzeros):
    """A vector of which every bit arrives, negative zeros included: entries are sent unless all their bits are zero."""

    def dense(self) -> Tensor:
        """The vector."""
        return self.vector

    def _mask(self) -> Tensor:
        return self.vector.view(_PATTERNS[self.vector.dtype.itemsize]) != 0

    def _as_sent(self) -> Tensor:
        return self.vector
