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

The paper has all clients in every round.  Where only a share s of them takes part, its c_i is stale for most.  So with
`participation = "shared"` what the server knows of client i has a shared and an own part, known_i = κ c + ω Σ Δ_i with
ω = own_part and κ = 1 - ω s/η; a client in the round sends Δ_i = C(mean gradient - known_i), and c ← c + η mean Δ_i.
So c = mean known_i always, what some clients learn moves the estimate for all, and η, the mixing, averages over
rounds without a memory v_i.  `averaged` is the older rule, c ← c + s mean Δ_i with the paper's own memories.  With all
clients both are the paper's algorithm.

The reading of what the paper leaves open (A1-A22), and what the rules do, is in docs/algorithms.md.  Ours, too:
`drift_weight` below 1 weakens the correction c - c_i, at the price of a biased fixed point.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import corrected_steps
from fedcef.compressors import Compressor, TopK
from fedcef.core.parts import BY_ENGINE
from fedcef.core.ranges import Fraction, UnitInterval
from fedcef.core.rng import Key
from fedcef.wire import Context, Contexts, Dense, faded


@dataclass(frozen=True, kw_only=True, eq=False)
class FedCEF(Algorithm):
    """The paper's method: compressed control variates, error feedback, decoupled proximal steps."""

    mixing: Fraction = 1.0
    """η: how much of a round's mean gradient enters v_i, or c where some clients are away."""
    downlink: Literal["increment", "dense", "lossy"] = "increment"
    """What the server sends: the sparse increment of c, z̃ as in the paper, or a compressed correction of c."""
    down_compressor: Compressor = TopK(ratio=0.05)
    """C', for the lossy downlink."""
    drift_weight: UnitInterval = 1.0
    """The strength of the correction c - c_i in the local steps; 1 is the paper's, and the only exact one."""
    participation: Literal["shared", "averaged"] = "shared"
    """What becomes of the controls where some clients are away; with all of them in every round it has no effect."""
    own_part: UnitInterval = 0.5
    """ω, for "shared": how much of what a client sends it keeps for itself, beside what all share; at most η/s.  With 0
    clients keep nothing from round to round, and their steps are not corrected for drift."""
    index_code: Literal["plain", "context"] = "plain"
    """How the positions of kept entries are coded: by themselves, or given what both sides know of each entry."""
    share: Fraction = field(default=1.0, metadata=BY_ENGINE)
    """s = S/N, as planned."""

    steps_locally: ClassVar[bool] = True
    compresses: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("delta",)

    @property
    def compressors_used(self) -> tuple[str, ...]:
        return ("compressor", "down_compressor") if self.downlink == "lossy" else ("compressor",)

    @property
    def is_shared(self) -> bool:
        """Whether the controls have a part that all clients share."""
        return self.participation == "shared" and self.share < 1

    def for_share(self, share: float) -> Self:
        return replace(self, share=share)

    def replica_init(self, z0: Vector) -> State:
        names = ("c", "activity") if self._has_activity else ("c",)
        return {"z": z0, **{name: z0.new_zeros(z0.shape) for name in names}}

    def server_init(self, z0: Vector) -> State:
        return {} if self.downlink == "increment" else {"c": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        names = (("c_i",) if self.own_part else ()) if self.is_shared else ("c_i", "v_i")
        return {name: z0.new_zeros(z0.shape) for name in names}

    def known(self, c: Vector, c_i: Vector) -> Vector:
        """What the server knows of a client's gradient: the sum of all that it has sent, or parts of that and of c."""
        if not self.is_shared:
            return c_i
        if not self.own_part:
            return c
        own = min(self.own_part, self.mixing / self.share)
        return (1 - own * self.share / self.mixing) * c + own * c_i

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        c, c_i = replica["c"], client.get("c_i", replica["c"])
        known = self.known(c, c_i)
        drift = self.drift_weight * (c - known)
        g_mean = corrected_steps(self, replica["z"], drift, oracle, self.regularizer).g_mean
        memory = {} if self.is_shared else {"v_i": (1 - self.mixing) * client["v_i"] + self.mixing * g_mean}
        delta = self.compressor.compress(memory.get("v_i", g_mean) - known, key)
        own = {"c_i": c_i + delta.dense()} if "c_i" in client else {}
        return {"delta": delta}, {**own, **memory}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        share, mean = received.share, received.mean["delta"]
        scale = self.mixing * (share / self.share) if self.is_shared else share  # fewer may reply than were asked
        if self.downlink == "increment":
            return {"increment": received.without_loss("delta", scale)}, {}
        c_mean = server["c"] + share * mean  # of all clients' c_i
        c = self.known(replica["c"], server["c"]) + scale * mean if self.is_shared else c_mean
        if self.downlink == "lossy":
            key = Key(received.key, received.key)
            return {"increment": self.down_compressor.compress(c - replica["c"], key)}, {"c": c_mean}
        return {"z_tilde": Dense(replica["z"] - self.step * c)}, {"c": c_mean}

    def advance(self, replica: State, down: Message) -> State:
        if self.downlink == "dense":
            z_tilde = down["z_tilde"].dense()
            return {"z": self.regularizer.prox(z_tilde, self.step), "c": (replica["z"] - z_tilde) / self.step}
        increment = down["increment"].dense()
        c = replica["c"] + increment
        z = self.regularizer.prox(replica["z"] - self.step * c, self.step)
        lately = {"activity": faded(replica["activity"], increment)} if self._has_activity else {}
        return {"z": z, "c": c, **lately}

    @property
    def _has_activity(self) -> bool:
        return self.index_code == "context" and self.downlink != "dense"

    def contexts(self, replica: State) -> Contexts:
        if self.index_code == "plain":
            return {}
        context = Context.of(*(replica[name] for name in replica if name != "z"))
        return {"delta": context, "increment": context}

    def diagnostics(self, replica: State, mean: State) -> dict[str, Tensor]:
        return {"control_gap": (replica["c"] - self.known(replica["c"], mean.get("c_i", replica["c"]))).norm()}
