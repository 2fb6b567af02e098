"""EF21: error feedback on differences of gradients.

Richtárik, Sokolov, Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback"
(NeurIPS 2021, arXiv 2106.05203).  Every client's estimate g_i of its gradient learns from what it sends:

    client:  Δ_i = C(∇f_i(z) - g_i);   g_i ← g_i + Δ_i;   upload Δ_i
    server:  g ← g + mean Δ_i;   z ← prox_{βh}(z - β g);   broadcast z

The order within a round differs from the paper's, the points do not: it starts from g_i = C(∇f_i(z0)), which is the
first round here, from g_i = 0.  Ours: ∇f_i is the mean of K minibatch gradients at z and the step is β, so that a round
costs and moves what it does in other methods.  A cohort smaller than N moves g by its share of the mean, which keeps
g = mean g_i (EF21-PP of arXiv 2110.03294).  With the default prox this is EF21-Prox (ef21_prox.py); all gradients are
taken at z, so that the prox is exact.  z is broadcast dense, as published; ef21_bc.py broadcasts increments of g.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import mean_gradient
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class EF21(SmoothMethod):
    """Error feedback on compressed differences of gradients."""

    compresses: ClassVar[bool] = True
    takes_rules: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("delta",)

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def server_init(self, z0: Vector) -> State:
        return {"g": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"g_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        g_i = client["g_i"]
        delta = self.compressor.compress(self.gradient(replica, oracle) - g_i, key)
        return {"delta": delta}, {"g_i": g_i + delta.dense()}

    def gradient(self, replica: State, oracle: Oracle) -> Vector:
        """A client's gradient of this round."""
        return mean_gradient(replica["z"], self.local_oracle(oracle), self.local_steps)

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        g = server["g"] + received.share * received.mean["delta"]
        return {"z": Dense(self.server_prox(replica["z"] - self.step * g))}, {"g": g}
