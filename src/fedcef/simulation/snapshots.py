"""The replica in one message, for those who missed more of the log than that."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State
from fedcef.wire import Dense, Payload, Sparse
from fedcef.wire.codes.indices import gaps_of_mask
from fedcef.wire.forms.sparse import sparse_nbytes

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class Bits(Payload):
    """A vector of which every bit arrives, in its smaller form: all entries, or all but those whose bits are all zero.

    Unlike `Nonzeros` it keeps the sign of a negative zero, which some proximal operators leave: who follows the log has
    it, and so must who takes the snapshot.
    """

    vector: Tensor  # (..., p)

    @property
    def dim(self) -> int:  # type: ignore[override]  # read-only here as in the frozen siblings
        """The length of the vector."""
        return self.vector.shape[-1]

    def dense(self) -> Tensor:
        """The vector."""
        return self.vector

    def nbytes(self) -> Tensor:
        """The size of the smaller form."""
        if self.vector.ndim == 1 and self.vector.device.type == "cpu":  # nobody waits for a count
            return torch.minimum(self._sparse().nbytes(), Dense(self.vector).nbytes())
        mask = self._mask()
        count = mask.sum(-1)
        sparse = sparse_nbytes(count * self.vector.dtype.itemsize, gaps_of_mask(mask), count, self.dim)
        return torch.minimum(sparse, Dense(self.vector).nbytes())

    def paper_nbytes(self) -> Tensor:
        """8 bytes an entry that is sent, or 4 for each if that is less."""
        return torch.minimum(8 * self._mask().sum(-1), Dense(self.vector).paper_nbytes())

    def rows(self) -> list[Payload]:
        """A payload for each vector of the stack."""
        return [Bits(row) for row in self.vector.unbind()]

    def encode(self) -> bytes:
        """The bytes of a `Sparse` or `Dense`, which is also what they decode to; `Dense` on a tie."""
        dense = Dense(self.vector)
        if self.vector.ndim != 1:
            return dense.encode()  # says what is wrong
        sparse = self._sparse()
        return sparse.encode() if sparse.nbytes() < dense.nbytes() else dense.encode()

    def _mask(self) -> Tensor:
        return self.vector.view(_BITS[self.vector.dtype.itemsize]) != 0

    def _sparse(self) -> Sparse:
        indices = self._mask().nonzero().squeeze(-1)
        return Sparse(self.vector[indices], indices, self.dim)


def whole(replica: State) -> Message:
    """The replica with all its entries."""
    return {name: Dense(vector) for name, vector in replica.items()}


def snapshot(replica: State) -> Message:
    """The replica without its zeros, as it is sent to clients that missed much."""
    return {name: Bits(vector) for name, vector in replica.items()}
