"""SparseLoCo: local AdamW, chunk-wise Top-k in two bits, error feedback that forgets, and plain steps on the server.

Sarfi, Thérien, Lidin, Belilovsky, "Communication Efficient LLM Pre-training with SparseLoCo" (arXiv 2508.15706):

    client:  x = z;   for k:  x ← x - α·AdamW(g_i(x))
             e_i ← ρ e_i + x - z;   d_i = C(e_i);   e_i ← e_i - d_i;   upload d_i
    server:  broadcast the mean of the d_i
    all:     z ← z + η_g · mean d_i

The memory e_i takes the place of the server's momentum; ρ = 0.95 unless told otherwise.  C keeps 64 of every 4,096
entries (1.6%; the paper has 1% to 3%) and two bits of each value: 12 bits for a position in its chunk and 2 for the
value make 14 bits an entry as published.  Here chunks are stretches of the flat vector, where the authors' code has
tiles of 64 × 64 in every matrix; the two bits choose among ±s and ±s/2 with a scale s for every 256 values (`log2`),
where theirs sort a matrix's kept values into bins of equal width and send the mean of each bin; and positions are Rice
coded.  docs/methods.md has the sizes.

Everyone adds the mean to z: the server sends it in its shortest form without loss, or passes the clients' messages on,
as the authors' workers do among themselves.  With another `server_update`, such as DiLoCo's momentum, the server alone
takes the step and broadcasts z, in four bytes an entry.  Subgradients of h enter the local gradients (ours), or one
proximal step after the round.  With ρ = 1 these are the rounds of Qsparse-local-SGD and Fed-EF.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedcef.algorithms.algorithm import Message, Oracle, Received, State
from fedcef.algorithms.diloco import INNER
from fedcef.algorithms.qsparse import Qsparse
from fedcef.compressors import BlockwiseTopK, Compressor
from fedcef.core.ranges import UnitInterval
from fedcef.core.rng import Key
from fedcef.optimizers import LocalUpdate, Plain


@dataclass(frozen=True, kw_only=True, eq=False)
class SparseLoCo(Qsparse):
    """Local AdamW with sparse, quantised changes and error feedback that forgets."""

    error_decay: UnitInterval = 0.95
    """ρ: how much of what was not sent is remembered."""
    local_update: LocalUpdate = INNER
    compressor: Compressor = BlockwiseTopK(ratio=1 / 64, length=4096, values="log2")
    composite: Literal["server_prox", "subgradient"] = "subgradient"

    asynchronous: ClassVar[bool] = False

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        return super().local(replica, {**client, "e_i": self.error_decay * client["e_i"]}, oracle, key)

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        if isinstance(self.server_update, Plain):
            return {"change": received.without_loss("change", 1.0)}, server
        return super().server_step(server, replica, received)

    def advance(self, replica: State, down: Message) -> State:
        if "z" in down:
            return {"z": down["z"].dense()}
        return {"z": self.server_prox(replica["z"] + self.server_lr * down["change"].dense())}
