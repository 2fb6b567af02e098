"""FedMiD, federated mirror descent.

Yuan, Zaheer, Reddi, "Federated Composite Optimization" (ICML 2021, arXiv 2011.08474), Euclidean case: FedAvg with
proximal gradient steps on the clients.

    client:  x = z;   for k:  x ← prox_{αh}(x - α g_i(x));   upload x - z
    server:  z ← prox_{βh}(z + η_g · mean (x - z));   broadcast z

This is the authors' public code, with the plain mean (theirs weighs by samples).  **It shrinks twice**: K proximal
steps of length α on the clients make up the length αK of a round, and the server adds β on top.  One client with
K = η_g = 1 and h = λ|·|₁ ends at the minimiser for 2λ.  Projections are idempotent and not affected.
`server_prox = "none"`, ours, leaves the second one out: one client is then exact, and several are O(αK) away from the
solution.  Its models are means of the clients' points, so that entries which should be 0 are of size O(α) instead:
‖G_β‖, whose step β is no longer, does not vanish with α.  4p bytes up, 4p down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedcef.algorithms.algorithm import Algorithm, Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import gradient_steps
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedMiD(Algorithm):
    """Federated mirror descent: proximal steps on the clients, and again on the server."""

    server_prox: Literal["published", "none"] = "published"
    """The server's proximal step: of length β on top of the clients' own, or none, so that h counts once."""

    steps_locally: ClassVar[bool] = True
    steps_by_mean: ClassVar[bool] = True
    takes_rules: ClassVar[bool] = True
    keeps_updates: ClassVar[bool] = True

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        z = replica["z"]
        x, state = gradient_steps(self, z, oracle, self.regularizer, self.resumed(client))
        return {"change": Dense(x - z)}, self.carried(state)

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        step, server = self.server_update.update(received.mean["change"], server)
        z = replica["z"] + self.server_lr * step
        if self.server_prox == "published":
            z = self.regularizer.prox(z, self.step)
        return {"z": Dense(z)}, server
