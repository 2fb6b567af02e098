"""Scaffnew: ProxSkip for clients that must agree.

Mishchenko, Malinovsky, Stich, Richtárik 2022 (arXiv 2202.09357).  With β = α/θ, control variates h_i that start at 0,
and L and θ as in random_steps.py:

    client:  x_i = z;   L times:  x_i ← x_i - α (g_i(x_i) - h_i);   upload x_i
    server:  z ← prox_{βh}(mean x_i - β · mean h_i);   broadcast z
    client:  h_i ← h_i + (z - x_i)/β

Scaffnew is this with h = 0, where mean h_i = 0 and z = mean x_i.  With h it is ProxSkip, whose prox is then that of h
and of the constraint that all x_i are one.  So h enters as the paper has it, and the fixed point is exact: there x_i =
z, h_i = ∇f_i(z) and z = prox_{βh}(z - β∇f(z)).

A client learns z after its work.  So h_i is kept in parts, h_i = d_i - d - v: d_i adds up a client's own messages, d
their means, and v, a subgradient of h, is what the last proximal step took:

    client:  Δ_i = (z - x_i)/β;   d_i ← d_i + Δ_i;   upload Δ_i
    server:  broadcast Δ = mean Δ_i
    all:     d ← d + Δ;   y = z - β (Δ - v);   z ← prox_{βh}(y);   v ← (y - z)/β

which are the same numbers, as mean h_i = -v throughout.  There is no η_g in the paper; here it makes the last line's β
longer, β = α·η_g/θ, and not the first's.  All clients take part.

With L = K, θ = 1/K and h = 0 it is SCAFFOLD (option II), and FedCOMGATE with nothing compressed, at one vector each
way.  What a random L changes is how much a round's gradients count in h_i, which is θL.  The paper's text was not at
hand; the updates were checked against its abstract and public code (wenh06/fl-sim), and the prox by where it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import corrected_steps
from fedcef.algorithms.random_steps import RandomSteps
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaffnew(RandomSteps):
    """Scaffnew, which is ProxSkip; one vector each way."""

    partial_participation: ClassVar[bool] = False
    steps_locally: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("delta",)

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "d": z0.new_zeros(z0.shape), "v": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"d_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        correction = replica["d"] + replica["v"] - client["d_i"]
        oracle = self.until_the_end(self.local_oracle(oracle), correction, key)
        g_mean = corrected_steps(self, replica["z"], correction, oracle).g_mean
        delta = (self.local_steps / self.mean_steps) * (g_mean + correction)
        return {"delta": Dense(delta)}, {"d_i": client["d_i"] + delta}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        return {"delta": Dense(received.mean["delta"])}, {}

    def advance(self, replica: State, down: Message) -> State:
        delta = down["delta"].dense()
        y = replica["z"] - self.step * (delta - replica["v"])
        z = self.server_prox(y)
        return {"z": z, "d": replica["d"] + delta, "v": (y - z) / self.step}
