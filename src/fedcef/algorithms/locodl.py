"""LoCoDL: local steps and unbiased compression, around a point that all clients compute alike.

Condat, Maranjyan, Richtárik 2024 (arXiv 2403.04348), for mean f_i + g with a g that everyone knows.  Every client has a
point x_i and a control u_i; the point y and the control v, with mean u_i + v = 0, are everyone's:

    client:  K times:  x_i ← x_i - α (∇f_i(x_i) - u_i);   d_i = C(x_i - y);   upload d_i
    all:     K times:  y ← y - α (∇g(y) - v)
    server:  broadcast d = (1/2) mean d_i
    all:     x_i ← (1-ρ) x_i + ρ (y + d);   y ← y + ρ d;   u_i ← u_i + κ (d - d_i);   v ← v + κ d

where both K steps come before d_i.  Here ρ = η_g, and κ = a/(αK) with a = scaling for the paper's χ/(1+2ω).  The number
of steps is fixed, K for its 1/p: the server must walk with y, and does not have the key for a random one.  C is to be
unbiased with E|C(x) - x|² <= ω|x|²; a = 1/(1+2ω) and η_g = 1/(1+ω) worked wherever we tried.  With C = identity and a =
η_g = 1 it is Scaffnew among 2N clients, N of which have g.

Here h is a part of g and enters by its prox (ours): y ← prox_{αh}(y - α (∇g(y) - v)).  The fixed point is exact for any
h: x_i = y = z, u_i = ∇f_i(z), and v - ∇g(z) is a subgradient of h.  The rest of g is (μ/2)|x|², taken from every f_i,
so that the problem does not change; the paper asks for a strongly convex g.  With h, the model is y after one more step
of its own, which has exact zeros.

A client learns d after its work.  So x_i is kept as its distance to y, o_i = (1-ρ)(x_i - y), and u_i as a_i + v, where
a_i = -κ Σ d_i.  d is sent as its non-zero entries.  All clients take part.  Reconstructed: the abstract was at hand,
the algorithm was not; the invariant and the limits above were derived again, and are tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import gradient_steps
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.core.ranges import Fraction, NonNegative
from fedcef.core.rng import Key
from fedcef.regularizers import Zero
from fedcef.wire import Nonzeros


@dataclass(frozen=True, kw_only=True, eq=False)
class LoCoDL(SmoothMethod):
    """Local steps, and compressed differences to a common point."""

    scaling: Fraction = 1.0
    """a: the step of the control variates, in units of 1/(αK)."""
    shift: NonNegative = 0.0
    """μ: how much of the curvature of every f_i the common point's own function has."""

    partial_participation: ClassVar[bool] = False
    steps_locally: ClassVar[bool] = True
    compresses: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("d_i",)

    def largest_prox_step(self, rounds: int) -> float:
        return self.local_lr

    def replica_init(self, z0: Vector) -> State:
        return {"y": z0, "v": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"a_i": z0.new_zeros(z0.shape), "o_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        u_i = client["a_i"] + replica["v"]
        x = gradient_steps(self, replica["y"] + client["o_i"], lambda x, k: oracle(x, k) - self.shift * x - u_i).x
        distance = x - self._walked(replica)
        sent = self.compressor.compress(distance, key)
        return {"d_i": sent}, {
            "a_i": client["a_i"] - self._dual_step * sent.dense(),
            "o_i": (1 - self.server_lr) * distance,
        }

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        return {"d": Nonzeros(received.mean["d_i"] / 2)}, {}

    def advance(self, replica: State, down: Message) -> State:
        d = down["d"].dense()
        return {"y": self._walked(replica) + self.server_lr * d, "v": replica["v"] + self._dual_step * d}

    def model(self, replica: State) -> Vector:
        return replica["y"] if isinstance(self.regularizer, Zero) else self._common_step(replica["y"], replica["v"])

    @property
    def _dual_step(self) -> float:
        """κ."""
        return self.scaling / (self.local_lr * self.local_steps)

    def _walked(self, replica: State) -> Vector:
        """Where the common point stands after the round's steps."""
        y = replica["y"]
        for _ in range(self.local_steps):
            y = self._common_step(y, replica["v"])
        return y

    def _common_step(self, y: Vector, v: Vector) -> Vector:
        gradient = self.shift * y - v
        if self.composite == "subgradient":
            return y - self.local_lr * (gradient + self.regularizer.subgradient(y))
        return self.regularizer.prox(y - self.local_lr * gradient, self.local_lr)
