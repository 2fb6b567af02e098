"""DiLoCo: local AdamW, Nesterov momentum on the server.

Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models" (arXiv 2311.08105):

    client:  x = z;   for k:  x ← x - α·AdamW(g_i(x));   upload x - z;   AdamW's memory stays with the client
    server:  d = mean (x - z);   m ← γ m + d;   z ← z + η_g (d + γ m);   broadcast z

The authors have γ = 0.9, the default, and η_g = 0.7, which is to be set.  This is FedAvgM with `nesterov` and AdamW;
subgradients of h enter the local gradients (ours: a proximal step of one length does not go with AdamW's).  With γ = 0,
η_g = 1 and SGD it is FedAvg, which with K = 1 is data parallelism.  With AdamW and K = 1 each client steps by the size
of its own gradients: one client is AdamW, several take the mean of their steps, which is not AdamW's step for the mean
gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedcef.algorithms.fedavgm import FedAvgM
from fedcef.optimizers import AdamW, LocalUpdate, Memory

INNER = AdamW(decay=0.95, weight_decay=0.1, memory="client")
"""The local update of DiLoCo and its kin, as in the public reproductions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DiLoCo(FedAvgM):
    """Local AdamW, and Nesterov momentum on the clients' mean change."""

    local_update: LocalUpdate = INNER
    momentum: Memory = 0.9
    """γ: how much of the server's last step is repeated."""
    nesterov: bool = True
    composite: Literal["server_prox", "subgradient"] = "subgradient"

    asynchronous: ClassVar[bool] = False
