"""FedCEF: federated composite error feedback.

Qiu, Ouyang, Xiong, You, Liu, Shi, "Compressed Proximal Federated Learning for Non-Convex Composite
Optimization on Heterogeneous Data", Algorithm 1.  With α = local_lr, K = local_steps, η = mixing and
β = α·η_g·K = step, client i does in round t

    x̂ = x = z;   for k = 0..K-1:   x̂ ← x̂ - α (g_i(x) + c - c_i);   x ← prox_{(k+1)αh}(x̂)
    v_i ← (1-η) v_i + η · (mean of the K gradients);   Δ_i = C(v_i - c_i);   c_i ← c_i + Δ_i

and the server c ← c + mean Δ_i.  Everyone then sets z̃ = z - β c and z = prox_{βh}(z̃).

Three ways to tell the clients: `dense` broadcasts z̃ as the paper does, and everyone rebuilds
c = (z - z̃)/β, which rounding makes inexact in float32; `increment` broadcasts the mean of the Δ_i, which
is sparse, and from which everyone computes the same c, z̃ and z bit for bit; `lossy` keeps the true c on the server,
broadcasts C'(c - ĉ) and has everyone, the server's z included, use ĉ ← ĉ + C'(c - ĉ) in place of c (EF21-BC on
the control, docs/communication.md).  Then z is still the same everywhere and exactly structured by the prox.

The reading of what the paper leaves open (A1-A22) is in docs/algorithms.md.  Ours: `drift_weight` below 1
weakens the correction c - c_i, at the price of a biased fixed point; a cohort smaller than N moves
c by the cohort's share of its mean, which keeps c = mean c_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import corrected_steps
from fedcef.compressors import Compressor, TopK
from fedcef.core.ranges import Fraction, UnitInterval
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedCEF(Algorithm):
    """The paper's method: compressed control variates, error feedback, decoupled proximal steps."""

    mixing: Fraction = 1.0
    """η: how much of a round's mean gradient enters v_i."""
    downlink: Literal["increment", "dense", "lossy"] = "increment"
    """What the server sends: the sparse increment of c, z̃ as in the paper, or a compressed correction of c."""
    down_compressor: Compressor = TopK(ratio=0.05)
    """C', for the lossy downlink."""
    drift_weight: UnitInterval = 1.0
    """The strength of the correction c - c_i in the local steps; 1 is the paper's, and the only exact one."""

    steps_locally: ClassVar[bool] = True
    compresses: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("delta",)

    @property
    def compressors_used(self) -> tuple[str, ...]:
        return ("compressor", "down_compressor") if self.downlink == "lossy" else ("compressor",)

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "c": z0.new_zeros(z0.shape)}

    def server_init(self, z0: Vector) -> State:
        return {} if self.downlink == "increment" else {"c": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"c_i": z0.new_zeros(z0.shape), "v_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        c, c_i, v_i = replica["c"], client["c_i"], client["v_i"]
        drift = self.drift_weight * (c - c_i)
        g_mean = corrected_steps(self, replica["z"], drift, oracle, self.regularizer).g_mean
        v_i = (1 - self.mixing) * v_i + self.mixing * g_mean
        delta = self.compressor.compress(v_i - c_i, key)
        return {"delta": delta}, {"c_i": c_i + delta.dense(), "v_i": v_i}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        increment = received.share * received.mean["delta"]
        if self.downlink == "increment":
            return {"increment": received.without_loss("delta", increment)}, {}
        c = server["c"] + increment
        if self.downlink == "lossy":
            key = Key(received.key, received.key)
            return {"increment": self.down_compressor.compress(c - replica["c"], key)}, {"c": c}
        return {"z_tilde": Dense(replica["z"] - self.step * c)}, {"c": c}

    def advance(self, replica: State, down: Message) -> State:
        if self.downlink == "dense":
            z_tilde = down["z_tilde"].dense()
            c = (replica["z"] - z_tilde) / self.step
        else:
            c = replica["c"] + down["increment"].dense()
            z_tilde = replica["z"] - self.step * c
        return {"z": self.regularizer.prox(z_tilde, self.step), "c": c}

    def diagnostics(self, replica: State, mean: State) -> dict[str, Tensor]:
        return {"control_gap": (replica["c"] - mean["c_i"]).norm()}
