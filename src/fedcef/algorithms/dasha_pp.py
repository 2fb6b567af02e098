"""DASHA-PP: tracked gradients, compressed, with some of the clients.

Tyurin, Richtárik, "A Computation and Communication Efficient Method for Distributed Nonconvex Problems in the Partial
Participation Setting" (NeurIPS 2023, arXiv 2205.15580).  Client i follows its gradient by h_i and knows by g_i what the
server has of it.  With z⁻ the point of the round before, p the share of the clients that take part, and both gradients
on the same samples,

    client:  k_i = (∇f_i(z) - ∇f_i(z⁻))/p + b (∇f_i(z⁻) - h_i);   Δ_i = C(k_i + a (h_i - g_i));   upload Δ_i
             h_i ← h_i + k_i;   g_i ← g_i + Δ_i
    server:  g ← g + (S/N) mean Δ_i;   z ← prox_{βh}(z - β g);   broadcast z and p

Whoever takes part moves h_i by 1/p of the step that everyone's should have made: the mean of all h_i is right on
average, though single ones lag behind.  That asks for shorter steps than EF21's, the shorter the smaller p.

k_i, a and b are the paper's divided by p: theirs are a = p/(2ω+1) for an unbiased C with E|C(x) - x|² <= ω|x|², and
b = p/(2-p) where gradients are exact.  With minibatches a smaller b averages over rounds (their DASHA-PP-MVR).  A
contractive C, like Top-k, is ours: a = 1 makes it Δ_i = C(h_i - g_i) with the new h_i, EF21's rule.  With everyone and
the authors' b, h_i is the gradient at z and this is DASHA (arXiv 2202.01268); with a = 1, too, it is EF21.

A client that was away has never seen z⁻.  The published method sends both points to whoever takes part; here z⁻ is in
the replica, so that it costs 4p more to catch up, and nothing for those who were there the round before.  A round takes
2K minibatch gradients, K at either point.

The rule is that of the authors' code (its gradient and stochastic variants).  Ours: the prox; the K minibatches and the
step, as in ef21.py; h_i = g_i = 0 at the start, where the authors ask everyone for a gradient, so that in the first
round z⁻ = z and p plays no part (1 is taken); and p, the last cohort's share, which the server sends along.  In a run
with equal cohorts that is the paper's probability.

Where it stops: at z = z⁻ every h_i goes to ∇f_i(z), by b of the gap whenever the client takes part, and g_i to h_i.
Then g = ∇f(z), and z = prox_{βh}(z - β∇f(z)): exact with and without h, whoever takes part, as all gradients are taken
at points that everyone has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.ef21 import EF21
from fedcef.algorithms.local_steps import mean_gradient
from fedcef.core.ranges import UnitInterval
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class DASHAPP(EF21):
    """Momentum for tracking and for compression; exact with exact gradients, for any cohorts."""

    compression_momentum: UnitInterval = 0.0
    """a: how much of h_i - g_i a message makes up for; 0: the authors' 1/(2ω+1), or 1 where C is biased."""
    gradient_momentum: UnitInterval = 0.0
    """b: how much of its gap to the gradient h_i makes up for; 0: the authors' 1/(2-p) for exact gradients."""

    takes_rules: ClassVar[bool] = False  # its controls are unbiased only in the mean

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "z_prev": z0, "share": z0.new_ones(1)}

    def client_init(self, z0: Vector) -> State:
        return {"g_i": z0.new_zeros(z0.shape), "h_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        g_i, h_i, p, oracle = client["g_i"], client["h_i"], replica["share"], self.local_oracle(oracle)
        before = mean_gradient(replica["z_prev"], oracle, self.local_steps)
        now = mean_gradient(replica["z"], oracle, self.local_steps)
        a, b = self._compression_momentum(h_i.shape[-1]), self.gradient_momentum or 1 / (2 - p)
        k_i = (now - before) / p + b * (before - h_i)
        delta = self.compressor.compress(k_i + a * (h_i - g_i), key)
        return {"delta": delta}, {"g_i": g_i + delta.dense(), "h_i": h_i + k_i}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        down, server = super().server_step(server, replica, received)
        return {**down, "share": Dense(replica["share"].new_full((1,), received.share))}, server

    def advance(self, replica: State, down: Message) -> State:
        return {"z": down["z"].dense(), "z_prev": replica["z"], "share": down["share"].dense()}

    def _compression_momentum(self, dim: int) -> float:
        variance = self.compressor.variance(dim)
        return self.compression_momentum or (1.0 if variance is None else 1 / (2 * variance + 1))
