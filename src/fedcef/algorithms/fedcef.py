"""FedCEF: federated composite error feedback.

Qiu, Ouyang, Xiong, You, Liu, Shi, "Compressed Proximal Federated Learning for Non-Convex Composite
Optimization on Heterogeneous Data", Algorithm 1.  With α = local_lr, K = local_steps, η = mixing and
β = α·η_g·K = step, client i does in round t

    x̂ = x = z;   for k = 0..K-1:   x̂ ← x̂ - α (g_i(x) + c - c_i);   x ← prox_{(k+1)αh}(x̂)
    v_i ← (1-η) v_i + η · (mean of the K gradients);   Δ_i = C(v_i - c_i);   c_i ← c_i + Δ_i

and the server c ← c + mean Δ_i.  Everyone then sets z̃ = z - β c and z = prox_{βh}(z̃).

Four ways to tell the clients: `dense` broadcasts z̃ as the paper does, and everyone rebuilds
c = (z - z̃)/β, which rounding makes inexact in float32; `increment` broadcasts the mean of the Δ_i, which
is sparse, and from which everyone computes the same c, z̃ and z bit for bit; `lossy` keeps the true c on the server,
broadcasts C'(c - ĉ) and has everyone, the server's z included, use ĉ ← ĉ + C'(c - ĉ) in place of c (EF21-BC on
the control, docs/communication.md).  Then z is still the same everywhere and exactly structured by the prox.
`snapshot` keeps both z and c on the server and broadcasts z in a few bits an entry (coded_model.py) and C'(c), from
which clients take their steps.  Such a message stands alone: however long a client was away, it needs the last one.

The paper has all clients in every round.  Where only a share s of them takes part, its c_i is stale for most.  So with
`participation = "shared"` what the server knows of client i has a shared and an own part, known_i = κ c + ω Σ Δ_i with
ω = own_part and κ = 1 - ω s/η; a client in the round sends Δ_i = C(mean gradient - known_i), and c ← c + η mean Δ_i.
So c = mean known_i always, what some clients learn moves the estimate for all, and η, the mixing, averages over
rounds without a memory v_i.  `averaged` is the older rule, c ← c + s mean Δ_i with the paper's own memories.  With all
clients both are the paper's algorithm.

The reading of what the paper leaves open (A1-A22), and what the rules do, is in docs/algorithms.md.  Ours, too:
`drift_weight` below 1 weakens the correction c - c_i, at the price of a biased fixed point.

Local optimisers, also ours (docs/algorithms.md, section 13).  With `control = "gradient"` the local update sees the
corrected gradients g_i + c - c_i, its proximal steps are in its own metric, and c_i stays a mean of gradients: every
fixed point is stationary, whatever the update.  With `control = "direction"` the update sees g_i, and its direction
takes the place of the gradient in all that follows, so that c is the clients' mean direction and z moves as they did:
the pseudo-gradients of DiLoCo, compressed by differences.  That is exact where all clients scale gradients alike, and
off where each has a metric of its own.  `metric = "adam"` gives everyone one diagonal metric, from the c that all have:

    v ← b v + (1-b) c²;   D = √v̂ + τ;   z ← prox_{(β/D)h}(z - β c/D);   local SGD steps of length α/D

which is exact for any D and needs no further byte.

With `control = "change"` clients tell where their directions have led, and keep what they have not told yet:

    v_i ← v_i + mean of the K directions;   Δ_i = C(v_i);   v_i ← v_i - Δ_i;   c ← mean Δ_i;   z ← prox_{βh}(z - β c)

and likewise the server with a lossy downlink.  Nothing is repeated, and steps are not corrected.  These are the rounds
of SparseLoCo that forgets nothing, with FedCEF's prox and ways down.  It suits directions that change faster than they
can be told, and its limit is Qsparse's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, Message, Oracle, Received, State, Vector
from fedcef.algorithms.coded_model import ModelBits, coded, decoded
from fedcef.algorithms.local_steps import corrected_steps
from fedcef.compressors import Compressor, TopK
from fedcef.core.errors import ConfigError
from fedcef.core.parts import BY_ENGINE
from fedcef.core.ranges import Fraction, Positive, Scalar, UnitInterval
from fedcef.core.rng import Key
from fedcef.optimizers import SGD, Memory
from fedcef.wire import Context, Contexts, Dense, faded


@dataclass(frozen=True, kw_only=True, eq=False)
class FedCEF(Algorithm):
    """The paper's method: compressed control variates, error feedback, decoupled proximal steps."""

    mixing: Fraction = 1.0
    """η: how much of a round's mean gradient enters v_i, or c where some clients are away."""
    downlink: Literal["increment", "dense", "lossy", "snapshot"] = "increment"
    """What the server sends: the sparse increment of c, z̃ as in the paper, a compressed correction of c, or z and c
    coded, in messages that stand alone."""
    down_compressor: Compressor = TopK(ratio=0.05)
    """C', for the lossy downlink and for c in a snapshot."""
    model_bits: ModelBits = 2
    """Bits for an entry of z in a snapshot; 0 = all that it has."""
    drift_weight: UnitInterval = 1.0
    """The strength of the correction c - c_i in the local steps; 1 is the paper's, and the only exact one."""
    participation: Literal["shared", "averaged"] = "shared"
    """What becomes of the controls where some clients are away; with all of them in every round it has no effect."""
    own_part: UnitInterval = 0.5
    """ω, for "shared": how much of what a client sends it keeps for itself, beside what all share; at most η/s.  With 0
    clients keep nothing from round to round, and their steps are not corrected for drift."""
    index_code: Literal["plain", "context"] = "plain"
    """How the positions of kept entries are coded: by themselves, or given what both sides know of each entry."""
    control: Literal["gradient", "direction", "change"] = "gradient"
    """What the controls track and correct: the clients' gradients, or what their local update makes of them; or what
    those have led to so far, without correction."""
    metric: Literal["plain", "adam"] = "plain"
    """The metric of the server's step, and of the clients' if they take plain SGD steps."""
    metric_memory: Memory = 0.99
    """b, for "adam": how much of the squares of c is remembered."""
    metric_floor: Positive = 1e-8
    """τ, for "adam": what keeps D away from 0."""
    share: Fraction = field(default=1.0, metadata=BY_ENGINE)
    """s = S/N, as planned."""

    steps_locally: ClassVar[bool] = True
    compresses: ClassVar[bool] = True
    keeps_updates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tells_changes and (
            self.share < 1 or self.mixing < 1 or self.downlink in ("dense", "snapshot") or self.metric == "adam"
        ):
            raise ConfigError(
                "With algorithm.control = 'change' take all clients in every round, mixing = 1, the plain metric and "
                "the downlink increment or lossy; otherwise control = 'direction'."
            )
        if self.metric == "plain":
            return
        if self.downlink in ("dense", "snapshot"):
            raise ConfigError(
                f"The metric adam is made from c, round by round, which the downlink {self.downlink} does not send; "
                "take increment or lossy."
            )
        if not self.regularizer.elementwise:
            raise ConfigError(
                "The metric adam scales every entry by itself, and the regulariser's proximal operator is not closed "
                "in it; take l1, elastic_net or box, or the plain metric."
            )

    @property
    def tells_changes(self) -> bool:
        """Whether what is sent is a change that is made once, and not part of a control that goes on."""
        return self.control == "change"

    @property
    def adds_up(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """What clients have sent adds up to their controls; changes are past, and one may begin anew."""
        return () if self.tells_changes else ("delta",)

    @property
    def takes_rules(self) -> bool:  # type: ignore[override]
        """Unless what the server knows of a client is partly what it knows of all."""
        return not self.is_shared

    @property
    def takes_lengths(self) -> bool:
        return self.control == "gradient"

    @property
    def move(self) -> float:
        """How far z goes along c: the step β, or αη_gK where c has the gain of the local update already."""
        return self.step if self.control == "gradient" else self.local_lr * self.server_lr * self.local_steps

    @property
    def compressors_used(self) -> tuple[str, ...]:
        return ("compressor", "down_compressor") if self.downlink in ("lossy", "snapshot") else ("compressor",)

    @property
    def stands_alone(self) -> bool:
        return self.downlink == "snapshot"

    @property
    def is_shared(self) -> bool:
        """Whether the controls have a part that all clients share."""
        return self.participation == "shared" and self.share < 1

    def for_share(self, share: float) -> Self:
        return replace(self, share=share)

    def replica_init(self, z0: Vector) -> State:
        names = ("c", "activity") if self._has_activity else ("c",)
        squares = {"v": z0.new_zeros(z0.shape), "n": z0.new_zeros(1)} if self.metric == "adam" else {}
        start = {"start": z0} if self.stands_alone else {}
        return {"z": z0, **{name: z0.new_zeros(z0.shape) for name in names}, **squares, **start}

    def server_init(self, z0: Vector) -> State:
        if self.stands_alone:
            return {"z": z0, "c": z0.new_zeros(z0.shape), "c_mean": z0.new_zeros(z0.shape)}
        return {} if self.downlink == "increment" else {"c": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        names = (("c_i",) if self.own_part else ()) if self.is_shared else ("c_i", "v_i")
        names = ("v_i",) if self.tells_changes else names
        return {**{name: z0.new_zeros(z0.shape) for name in names}, **super().client_init(z0)}

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
        method = self
        if self.metric == "adam" and type(self.local_update) is SGD:
            method = replace(self, local_lr=self.local_lr * self._scale(replica))  # type: ignore[arg-type]
        corrected: Literal["gradients", "directions"] = "gradients" if self.control == "gradient" else "directions"
        _, g_mean, state = corrected_steps(
            method, replica["z"], drift, oracle, self.regularizer, self.resumed(client), corrected=corrected
        )
        if self.tells_changes:
            v_i = client["v_i"] + g_mean
            delta = self.compressor.compress(v_i, key)
            return {"delta": delta}, {"v_i": v_i - delta.dense(), **self.carried(state)}
        memory = {} if self.is_shared else {"v_i": (1 - self.mixing) * client["v_i"] + self.mixing * g_mean}
        delta = self.compressor.compress(memory.get("v_i", g_mean) - known, key)
        own = {"c_i": c_i + delta.dense()} if "c_i" in client else {}
        return {"delta": delta}, {**own, **memory, **self.carried(state)}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        share, mean = received.share, received.mean["delta"]
        scale = self.mixing * (share / self.share) if self.is_shared else share  # fewer may reply than were asked
        if self.downlink == "increment":
            return {"increment": received.without_loss("delta", scale)}, {}
        if self.stands_alone:
            return self._snapshot(server, replica, received, scale)
        c_mean = server["c"] + share * mean  # of all clients' c_i, or of what they have told and the server has not
        c = self.known(replica["c"], server["c"]) + scale * mean if self.is_shared else c_mean
        if self.downlink == "lossy":
            key = Key(received.key, received.key)
            if self.tells_changes:
                told = self.down_compressor.compress(c_mean, key)
                return {"increment": told}, {"c": c_mean - told.dense()}
            return {"increment": self.down_compressor.compress(c - replica["c"], key)}, {"c": c_mean}
        return {"z_tilde": Dense(replica["z"] - self.move * c)}, {"c": c_mean}

    def _snapshot(self, server: State, replica: State, received: Received, scale: Scalar) -> tuple[Message, State]:
        """z and c coded, and the server's own after the round.

        Clients knew C'(c), so what they told of is their mean gradient as it is by that; c is its running mean.
        """
        mean = received.mean["delta"]
        c = c_mean = server["c_mean"] + received.share * mean
        if self.is_shared:
            c = (1 - scale) * server["c"] + scale * (self.known(replica["c"], server["c_mean"]) + mean)
        z = self.regularizer.prox(server["z"] - self.move * c, self.step)
        key = Key(received.key, received.key)
        one, other = (Key(part, part) for part in (key.of_part(0), key.of_part(1)))
        down = coded(z, replica["start"], self.model_bits, one) | {"c": self.down_compressor.compress(c, other)}
        return down, {"z": z, "c": c, "c_mean": c_mean}

    def advance(self, replica: State, down: Message) -> State:
        if self.stands_alone:
            start = replica["start"]
            return {"z": decoded(down, start), "c": down["c"].dense(), "start": start}
        if self.downlink == "dense":
            z_tilde = down["z_tilde"].dense()
            return {"z": self.regularizer.prox(z_tilde, self.step), "c": (replica["z"] - z_tilde) / self.move}
        increment = down["increment"].dense()
        c = increment if self.tells_changes else replica["c"] + increment
        squares = self._squares(replica, c)
        by = self._scale(squares)
        z = self.regularizer.prox(replica["z"] - self.move * by * c, self.step * by)
        lately = {"activity": faded(replica["activity"], increment)} if self._has_activity else {}
        return {"z": z, "c": c, **lately, **squares}

    def _squares(self, replica: State, c: Vector) -> State:
        """The running mean of c² and the number of its terms, with this c."""
        if self.metric == "plain":
            return {}
        b = self.metric_memory
        return {"v": b * replica["v"] + (1 - b) * c.square(), "n": replica["n"] + 1}

    def _scale(self, squares: State) -> Scalar:
        """1/D, and 0 before the first round, in which nobody knows D: clients then take their gradients at z."""
        if self.metric == "plain":
            return 1.0
        n = squares["n"]
        whole = (1 - self.metric_memory**n).clamp(min=1 - self.metric_memory)
        return torch.where(n > 0, 1 / ((squares["v"] / whole).sqrt() + self.metric_floor), 0.0)

    def trained(self, replica: State, server: State) -> Vector:
        return server["z"] if self.stands_alone else replica["z"]

    @property
    def _has_activity(self) -> bool:
        return self.index_code == "context" and self.downlink not in ("dense", "snapshot")

    def contexts(self, replica: State) -> Contexts:
        if self.index_code == "plain":
            return {}
        context = Context.of(*(replica[name] for name in ("c", "activity") if name in replica))
        return {"delta": context} if self.stands_alone else {"delta": context, "increment": context}

    def diagnostics(self, replica: State, mean: State) -> dict[str, Tensor]:
        return {"control_gap": (replica["c"] - self.known(replica["c"], mean.get("c_i", replica["c"]))).norm()}
