"""FedDA, federated dual averaging.

Yuan, Zaheer, Reddi, "Federated Composite Optimization" (ICML 2021, arXiv 2011.08474), Euclidean case.  The
dual y adds up gradients; the primal point is prox_{eh}(y), where e is the length of all steps so far:

    client:  y_i = y, e_i = e;   for k:  w = prox_{e_i h}(y_i);   y_i ← y_i - α g_i(w);   e_i ← e_i + α
             upload y_i - y
    server:  y ← y + η_g · mean (y_i - y);   broadcast y
    all:     e ← e + β;   the model is prox_{eh}(y)

Clients are averaged by the engine's rule (plain mean by default; the authors' code weighs by samples).  There
is no correction of client drift: under heterogeneity the limit is off by O(αK).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Algorithm, Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import gradient_steps
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedDA(Algorithm):
    """Federated dual averaging."""

    steps_locally: ClassVar[bool] = True
    steps_by_mean: ClassVar[bool] = True
    keeps_updates: ClassVar[bool] = True

    def largest_prox_step(self, rounds: int) -> float:
        """Steps add up: rounds·β for the last model, or within the last round (rounds-1)·β + (K-1)·α."""
        return max(rounds * self.step, (rounds - 1) * self.step + (self.local_steps - 1) * self.local_lr)

    def replica_init(self, z0: Vector) -> State:
        return {"y": z0, "elapsed": z0.new_zeros(1)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        y, elapsed = replica["y"], replica["elapsed"]

        def at_primal_point(y_i: Vector, k: int) -> Vector:
            return oracle(self.regularizer.prox(y_i, elapsed + k * self.local_lr), k)

        y_i, state = gradient_steps(self, y, at_primal_point, state=self.resumed(client))
        return {"change": Dense(y_i - y)}, self.carried(state)

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        step, server = self.server_update.update(received.mean["change"], server)
        return {"y": Dense(replica["y"] + self.server_lr * step)}, server

    def advance(self, replica: State, down: Message) -> State:
        return {"y": down["y"].dense(), "elapsed": replica["elapsed"] + self.step}

    def model(self, replica: State) -> Vector:
        return self.regularizer.prox(replica["y"], replica["elapsed"])
