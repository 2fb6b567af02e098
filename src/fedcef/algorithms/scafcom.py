"""SCAFCOM: SCAFFOLD with contractive compression and momentum.

Huang, Li, Li (ICLR 2024, arXiv 2308.08165), reconstructed.  Local steps and server as in compressed_control.py;
with ḡ_i the mean of a client's K gradients and η = mixing,

    v_i ← (1-η) v_i + η ḡ_i;   Δ_i = C(v_i - c_i);   c_i ← c_i + Δ_i

The authors write ḡ_i as (z - x)/(αK) + c_i - c, which is the same number with fewer digits.  With h = 0 and all clients
it is FedCEF, but for the broadcast: z and c, dense, as published.  With η = 1 and nothing compressed it is SCAFFOLD.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcef.algorithms.algorithm import Message, Oracle, State, Vector
from fedcef.algorithms.compressed_control import CompressedControl
from fedcef.core.ranges import Fraction
from fedcef.core.rng import Key


@dataclass(frozen=True, kw_only=True, eq=False)
class SCAFCOM(CompressedControl):
    """Control variates, momentum and error feedback on compressed increments."""

    mixing: Fraction = 0.2
    """η: how much of a round's mean gradient enters v_i."""

    def client_init(self, z0: Vector) -> State:
        return {"c_i": z0.new_zeros(z0.shape), "v_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        c_i = client["c_i"]
        v_i = (1 - self.mixing) * client["v_i"] + self.mixing * self.gradient(replica, client, oracle)
        delta = self.compressor.compress(v_i - c_i, key)
        return {"delta": delta}, {"c_i": c_i + delta.dense(), "v_i": v_i}
