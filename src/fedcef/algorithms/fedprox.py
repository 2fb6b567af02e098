"""FedProx.

Li et al. 2020 (arXiv 1812.06127): FedAvg whose clients are held near z by a quadratic term of weight μ.

    client:  x = z;   for k:  x ← x - α (g_i(x) + μ (x - z));   upload x - z
    server:  z ← prox_{βh}(z + η_g · mean (x - z));   broadcast z

Every client takes K steps here; the paper lets the work differ from client to client.  μ shortens the drift of the
clients but does not correct it: the limit is off by O(αK), as FedAvg's is.  With μ = 0 it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedcef.algorithms.algorithm import Message, Oracle, State
from fedcef.algorithms.fedavg import FedAvg
from fedcef.algorithms.local_steps import gradient_steps, penalized
from fedcef.core.ranges import NonNegative
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedProx(FedAvg):
    """FedAvg with a proximal term in the clients' losses."""

    proximal_weight: NonNegative = 0.01
    """μ: how strongly a client is held near z."""

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        z = replica["z"]
        held = penalized(self.local_oracle(oracle), z, torch.zeros_like(z), self.proximal_weight)
        x, state = gradient_steps(self, z, held, state=self.resumed(client))
        return {"change": Dense(x - z)}, self.carried(state)
