"""FedAvg.

McMahan et al. 2017 (arXiv 1602.05629): clients take K gradient steps from z, the server averages.  With the
regulariser as a proximal step of length β after averaging (the default, ours; see smooth.py):

    client:  x = z;   for k:  x ← x - α g_i(x);   upload x - z
    server:  z ← prox_{βh}(z + η_g · mean (x - z));   broadcast z
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import gradient_steps
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedAvg(SmoothMethod):
    """Federated averaging, with a proximal step on the server."""

    steps_locally: ClassVar[bool] = True
    steps_by_mean: ClassVar[bool] = True
    asynchronous: ClassVar[bool] = True
    keeps_updates: ClassVar[bool] = True
    takes_rules: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ()

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        z = replica["z"]
        x, state = gradient_steps(self, z, self.local_oracle(oracle), state=self.resumed(client))
        return {"change": Dense(x - z)}, self.carried(state)

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        step, server = self.server_update.update(received.mean["change"], server)
        return {"z": Dense(self.server_prox(replica["z"] + self.server_lr * step))}, server
