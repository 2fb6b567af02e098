"""EF14, also EF-SGD: the first error feedback.

Seide et al. 2014; Stich, Cordonnier, Jaggi 2018 (arXiv 1809.07599); Karimireddy et al. 2019 (arXiv 1901.09847), with
the step inside the memory.  What compression cuts off is kept and added to the next message:

    client:  g = mean of K gradients at z;   d_i = C(e_i + β g);   e_i ← e_i + β g - d_i;   upload d_i
    server:  z ← prox_{βh}(z - mean d_i);   broadcast z

Ours: K minibatches at the same point and one step of length β, so that a round costs and moves what it does in other
methods; the prox (see smooth.py).  C must be contractive.  The memory holds steps, not gradients: where clients differ,
d_i does not go to zero, exact gradients or not, and z stays in a neighbourhood that shrinks with β.  Rand-k is the
exception: it draws one support for all, so that it acts on the mean step, which does go to zero.  Absent clients keep
their memory.
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
class EF14(SmoothMethod):
    """Error feedback on compressed gradient steps (EF-SGD)."""

    compresses: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ()

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def client_init(self, z0: Vector) -> State:
        return {"e_i": z0.new_zeros(z0.shape)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        g = mean_gradient(replica["z"], self.local_oracle(oracle), self.local_steps)
        wanted = client["e_i"] + self.step * g
        sent = self.compressor.compress(wanted, key)
        return {"step": sent}, {"e_i": wanted - sent.dense()}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        return {"z": Dense(self.server_prox(replica["z"] - received.mean["step"]))}, {}
