"""SCAFFOLD: control variates against client drift.

Karimireddy et al. 2020 (arXiv 1910.06378).  With the regulariser as a proximal step on the server (ours; smooth.py):

    client:  x = z;   for k:  x ← x - α (g_i(x) + c - c_i);   upload x - z and the change of c_i, where
             I:   c_i ← mean of the K minibatch gradients at z
             II:  c_i ← mean of the K gradients of the local steps
    server:  z ← prox_{βh}(z + η_g · mean (x - z));   c ← c + (S/N) · mean change;   broadcast z and c

The paper writes option II as c_i - c + (z - x)/(Kα), which is the same mean where a step is -α times the corrected
gradient.  Code that clips corrected gradients, or adds weight decay to them, carries both into c_i by that formula; the
mean taken here holds the oracle's gradients and nothing else.  Option I takes the K minibatches of the round once more,
at z; the paper makes a further pass over the local data.  By the formula, the server could compute option II's second
upload from the first; it is sent, and counted, as published.

With all clients, option II is FedCanon as reconstructed here, for any h; with h = 0 it is also FedCEF(mixing = 1) with
nothing compressed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import corrected_steps, mean_gradient
from fedcef.algorithms.smooth import SmoothMethod
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class SCAFFOLD(SmoothMethod):
    """SCAFFOLD, with a proximal step on the server; two vectors each way."""

    option: Literal["I", "II"] = "II"
    """Where the gradients of the next control variate are taken: at the server's point, or along the local steps."""

    steps_locally: ClassVar[bool] = True
    steps_by_mean: ClassVar[bool] = True
    takes_rules: ClassVar[bool] = True
    keeps_updates: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ("moved",)

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "c": z0.new_zeros(z0.shape)}

    def client_init(self, z0: Vector) -> State:
        return {"c_i": z0.new_zeros(z0.shape), **super().client_init(z0)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        z, c_i, oracle = replica["z"], client["c_i"], self.local_oracle(oracle)
        steps = corrected_steps(self, z, replica["c"] - c_i, oracle, state=self.resumed(client))
        control = steps.g_mean if self.option == "II" else mean_gradient(z, oracle, self.local_steps)
        moved = control - c_i
        kept = {"c_i": c_i + moved, **self.carried(steps.state)}
        return {"change": Dense(steps.x_hat - z), "moved": Dense(moved)}, kept

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        step, server = self.server_update.update(received.mean["change"], server)
        z = self.server_prox(replica["z"] + self.server_lr * step)
        c = replica["c"] + received.share * received.mean["moved"]
        return {"z": Dense(z), "c": Dense(c)}, server
