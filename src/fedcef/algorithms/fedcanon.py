"""FedCanon: control variates, and one proximal step a round, on the server.

Zhou, Zhong, Shi, Wen, Yu (arXiv 2504.11903).  Only its abstract was at hand; this is the reconstruction of
docs/algorithms.md that agrees with it, and it must not be taken for the authors' own pseudo-code:

    client:  x = z;   for k:  x ← x - α (g_i(x) + c - c_i);   c_i ← mean of the K gradients;   upload c_i
    server:  c = mean c_i;   z ← prox_{βh}(z - β c);   broadcast z and c

It is FedCEF with η = 1, nothing compressed and no local proximal steps; leaving those out biases the limit
by O(αK).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Algorithm, Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import corrected_steps
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedCanon(Algorithm):
    """FedCanon (reconstructed): control variates, one proximal step per round."""

    partial_participation: ClassVar[bool] = False
    steps_locally: ClassVar[bool] = True
    takes_rules: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ()

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "c": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"c_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        drift = replica["c"] - client["c_i"]
        c_i = corrected_steps(self, replica["z"], drift, oracle).g_mean
        return {"c_i": Dense(c_i)}, {"c_i": c_i}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        c = received.mean["c_i"]
        z = self.regularizer.prox(replica["z"] - self.step * c, self.step)
        return {"z": Dense(z), "c": Dense(c)}, {}
