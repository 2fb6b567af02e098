"""DeMo: decoupled momentum, of which clients send the fast components.

Peng, Quesnelle, Kingma, "DeMo: Decoupled Momentum Optimization" (arXiv 2411.19870), as in the authors' code:

    client:  m_i ← b m_i + g_i(z);   q_i = C(m_i);   m_i ← m_i - q_i;   upload q_i
    server:  Q = the mean of the q_i, coefficient by coefficient over those who sent it;   broadcast sign(Q)
    all:     z ← z - β (sign(Q) + weight decay · z)

C is the compressor `dct_topk`: the largest coefficients of the cosine transform of every 64 × 64 tile.  What a client
does not send stays in its own momentum, which is never averaged.  There are no local steps: g_i is the mean of K
minibatch gradients at z, and a round is one step of length β = αη_gK.  The authors' m_i holds gradients times the step
size, which is the same where that is constant.

sign(Q) travels in 1.6 bits an entry, where the authors' workers send their q_i to one another; so all have the same z,
whatever the rounding of their transforms.  Without `sign` Q itself is broadcast, in four bytes an entry.  Subgradients
of h enter the gradients (ours), or one proximal step after the round, which with signs solves another problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import mean_gradient
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.compressors import Compressor, Cosines, DCTTopK, from_cosines
from fedcef.core.ranges import NonNegative
from fedcef.core.rng import Key
from fedcef.optimizers import Memory
from fedcef.wire import Dense, Levels, Payload


@dataclass(frozen=True, kw_only=True, eq=False)
class DeMo(SmoothMethod):
    """Signs of the mean of the largest momentum coefficients that clients send (DeMo)."""

    momentum_decay: Memory = 0.999
    """b: how much of its momentum a client keeps from round to round."""
    sign: bool = True
    """Whether the step is the sign of the mean; otherwise it is the mean."""
    average: Literal["senders", "all"] = "senders"
    """Over whom a coefficient is averaged: those who sent it, or all, as if the others had sent 0."""
    weight_decay: NonNegative = 0.0
    """How much of z is added to the step."""
    compressor: Compressor = DCTTopK()
    composite: Literal["server_prox", "subgradient"] = "subgradient"

    compresses: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ()

    @property
    def counts_alike(self) -> bool:
        return self.average == "senders"

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def client_init(self, z0: Vector) -> State:
        return {"m_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        g = mean_gradient(replica["z"], self.local_oracle(oracle), self.local_steps)
        m = self.momentum_decay * client["m_i"] + g
        sent = self.compressor.compress(m, key)
        return {"fast": sent}, {"m_i": m - sent.dense()}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        mean = mean_over_senders(received.parts["fast"]) if self.average == "senders" else received.mean["fast"]
        if not self.sign:
            return {"step": Dense(mean)}, server
        codes = (mean.sign() + 1).to(torch.uint8)
        return {"step": Dense(Levels(codes, torch.ones_like(mean[:1], dtype=torch.float32), "ternary"))}, server

    def advance(self, replica: State, down: Message) -> State:
        z, step = replica["z"], down["step"].dense().to(replica["z"].dtype)
        return {"z": self.server_prox(z - self.step * (step + self.weight_decay * z))}


def mean_over_senders(payloads: Sequence[Payload]) -> Vector:
    """The mean of vectors, entry by entry over those in which it is not 0; of coefficients, where those were sent."""
    sent = [(p.coefficients if isinstance(p, Cosines) else p).dense() for p in payloads]
    total, count = torch.zeros_like(sent[0]), torch.zeros_like(sent[0])
    for vector in sent:
        total, count = total + vector, count + (vector != 0)
    mean, first = total / count.clamp(min=1), payloads[0]
    return from_cosines(mean, first.geometry) if isinstance(first, Cosines) else mean
