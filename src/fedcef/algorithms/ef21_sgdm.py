"""EF21-SGDM: EF21 on running means of stochastic gradients.

Fatkhullin, Tyurin, Richtárik, "Momentum Provably Improves Error Feedback!" (NeurIPS 2023, arXiv 2305.15155):

    client:  v_i ← (1-η) v_i + η g;   Δ_i = C(v_i - g_i);   g_i ← g_i + Δ_i;   upload Δ_i
    server:  g ← g + mean Δ_i;   z ← prox_{βh}(z - β g);   broadcast z

with g, the server and all that is ours as in ef21.py.  v_i and g_i start at zero; the authors start both at a gradient.
With the prox it is FedCEF with K = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcef.algorithms.algorithm import Message, Oracle, State, Vector
from fedcef.algorithms.ef21 import EF21
from fedcef.core.ranges import Fraction
from fedcef.core.rng import Key


@dataclass(frozen=True, kw_only=True, eq=False)
class EF21SGDM(EF21):
    """EF21 with momentum, for stochastic gradients."""

    mixing: Fraction = 0.1
    """η: how much of a round's gradient enters v_i; 1 is EF21."""

    def client_init(self, z0: Vector) -> State:
        return {"g_i": z0.new_zeros(z0.shape), "v_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        g_i = client["g_i"]
        v_i = (1 - self.mixing) * client["v_i"] + self.mixing * self.gradient(replica, oracle)
        delta = self.compressor.compress(v_i - g_i, key)
        return {"delta": delta}, {"g_i": g_i + delta.dense(), "v_i": v_i}
