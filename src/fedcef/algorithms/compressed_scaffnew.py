"""CompressedScaffnew: Scaffnew in which every entry is sent by s of the N clients.

Condat, Agarský, Richtárik 2022 (arXiv 2210.13277).  q_i is client i's column of zeros and ones in this round, of which
there are s in each entry (shared_columns.py):

    client:  x_i = z;   L times:  x_i ← x_i - α (g_i(x_i) - h_i);   upload the entries of x_i in q_i
    server:  z ← (1/s) Σ q_i x_i;   broadcast z
    client:  h_i ← h_i + χ (θ/α) q_i (z - x_i),        χ = N(s-1) / (s(N-1))

χ is the largest value that the paper allows for its η: at least 1/2, and 1 for s = N, where this is Scaffnew.  How h
and η_g enter, and when a client does the last line, is said in deferred_control.py: the fixed point is exact for any h.
L and θ are those of random_steps.py.

A message has ⌈ps/N⌉ values and the number of a column; no indices travel.  For that a client must know its place among
the others.  The simulator's do, a deployed one is not told it and refuses any s but 0.  All clients take part and count
alike.  The paper's text was not at hand: the columns, the division by s and the bound on χ were checked against the
code that authors published for TAMUNA, its successor (adap/flower, baselines/tamuna).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedcef.algorithms.algorithm import Message, Received, Vector
from fedcef.algorithms.deferred_control import DeferredControl
from fedcef.algorithms.shared_columns import columns_of, entries_of, put_back, taken
from fedcef.core.errors import ConfigError
from fedcef.core.ranges import NotNegative
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class CompressedScaffnew(DeferredControl):
    """Scaffnew whose clients each send some of the entries; by default all of them."""

    senders: NotNegative = 0
    """s: how many clients of a cohort send each entry, 2 or more; 0, or no fewer than there are: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.senders == 1:
            raise ConfigError("senders is 1; it must be 0, which stands for all, or at least 2.")

    @property
    def counts_alike(self) -> bool:
        return self.senders > 0

    def sent(self, x: Vector, key: Key) -> tuple[Message, Vector, Vector]:
        if not self.senders:
            return {"x": Dense(x)}, x, torch.full_like(x, 1) * self.weight
        columns, dim = columns_of(key), x.shape[-1]
        size = key.places[1]
        entries = entries_of(columns, dim, min(self.senders, size), size)
        values = taken(x, entries)
        w_i = self._weight(size) * put_back(torch.ones_like(values), entries, dim)
        return {"x": Dense(values), "column": Dense(columns.to(x.dtype).unsqueeze(-1))}, x, w_i

    def gathered(self, received: Received, dim: int) -> tuple[Vector, float]:
        if not self.senders:
            return super().gathered(received, dim)
        values, columns = (received.stacks[part].dense() for part in ("x", "column"))
        size = len(values)
        senders = min(self.senders, size)
        entries = entries_of(columns.squeeze(-1).to(torch.int64), dim, senders, size)
        return put_back(values, entries, dim).sum(0) / senders, self._weight(size) * senders / size

    def _weight(self, size: int) -> float:
        """χ θ/α in a cohort of this size."""
        factor = size * (self.senders - 1) / (self.senders * (size - 1)) if self.senders < size else 1.0
        return factor * self.weight
