"""What sender and receiver both know of a vector before it is sent, and how that shortens its indices.

A context puts each of the p entries in a class.  Entries of a class are about equally likely to be sent, and
neighbouring classes are similar.  An encoder writes down where the kept entries are in the order of (class, index).  So
they are dense in some stretches and rare in others, which the Rice parameters of groups follow (codes/rice.py): each
class is coded near the entropy of its own density, and no density is sent.

Both sides must have the same classes, bit for bit.  Compute them, entry by entry, from vectors that are the same: sums
over entries have last bits that depend on the device.  `Context.of` and `faded` do.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import torch
from torch import Tensor

from fedcef.wire.reader import WireError
from fedcef.wire.stacks import TensorTree

CLASSES = 256
"""How many classes there can be."""

_LOWEST = 2 * (127 - 96)  # what is below 1.5 · 2^-96 in magnitude, zeros among it, is in class 0


@dataclass(frozen=True, eq=False)
class Context(TensorTree):
    """The class of each entry of a vector, or of each vector of a stack."""

    classes: Tensor  # (..., p) uint8

    @classmethod
    def of(cls, *statistics: Tensor) -> Context:
        """Classes by half octaves of a sum of magnitudes: the larger it is, the likelier is an entry to be sent.

        Args:
            statistics: (..., p), of the scale of what is sent: the state that it changes, and what was sent lately.
        """
        score = reduce(torch.add, [statistic.abs() for statistic in statistics])
        half_octaves = score.float().contiguous().view(torch.int32) >> 22  # the exponent, and one bit of the fraction
        return cls((half_octaves - _LOWEST).clamp(0, CLASSES - 1).to(torch.uint8))

    @property
    def dim(self) -> int:
        """p."""
        return self.classes.shape[-1]

    @cached_property
    def checksum(self) -> int:
        """CRC-32 of a single context, by which a receiver knows that it has the sender's."""
        return zlib.crc32(self.classes.detach().cpu().numpy().tobytes())

    def rows(self, number: int) -> list[Context]:
        """The contexts of a stack of so many vectors, which may share one."""
        return [self] * number if self.classes.ndim == 1 else [Context(row) for row in self.classes.unbind()]

    def ranks(self, indices: Tensor) -> Tensor:
        """Ascending indices (..., k) -> where these entries are in the order of (class, index), ascending: (..., k)."""
        if self.classes.ndim > 1:  # one by one: what is computed for each has p entries
            rows = zip(self.rows(len(indices)), indices.unbind(), strict=True)
            return torch.stack([row.ranks(index) for row, index in rows])
        if indices.ndim == 1 and indices.device.type == "cpu":  # nobody waits for a count
            kept = torch.zeros(self.dim, dtype=torch.bool).index_fill(0, indices, value=True)
            return self.in_order(kept).nonzero().squeeze(-1)
        position = torch.arange(self.dim, dtype=torch.int32, device=indices.device)
        rank = torch.empty_like(position).scatter(0, self._order, position)
        return rank[indices].long().sort(-1).values

    def indices(self, ranks: Tensor) -> Tensor:
        """What `ranks` made these of: (k,) -> (k,), ascending."""
        return self._order[ranks].sort().values

    def in_order(self, mask: Tensor) -> Tensor:
        """A mask of entries (..., p) in the order of (class, index)."""
        if self.classes.ndim > 1:
            rows = zip(self.rows(len(mask)), mask.unbind(), strict=True)
            return torch.stack([row.in_order(own) for row, own in rows])
        return mask[..., self._order]

    def require_dim(self, dim: int) -> None:
        """Refuse a vector of another dimension than the context's."""
        if dim != self.dim:
            raise WireError(f"A vector of dimension {dim} cannot be coded with a context of dimension {self.dim}.")

    @cached_property
    def _order(self) -> Tensor:
        """The entries of a single context in the order of (class, index): (p,) int64."""
        if self.classes.device.type == "cpu":  # NumPy sorts bytes faster
            return torch.from_numpy(np.argsort(self.classes.numpy(), kind="stable"))
        return self.classes.sort(stable=True).indices


def faded(activity: Tensor, sent: Tensor) -> Tensor:
    """How much was sent of each entry lately, (..., p), after a message of this decoded value; begins with zeros.

    Single operations on exact numbers, so that all devices get the same bits.  What no class tells from zero is zero.
    """
    faint = 0.875 * activity
    return faint.masked_fill(faint < 2.0**-96, 0.0) + sent.abs()
