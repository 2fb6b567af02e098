"""FedBuff: buffered asynchronous averaging, its staleness simulated round by round.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation" (arXiv 2106.06639).  Clients work at their
own pace, and the server steps whenever S changes have arrived.  A round here is one such step, and its cohort are those
whose work is done.  Each delivers what it made of the model it was handed when it last delivered, and takes the present
one to work on next; n counts the server's steps:

    client:  a = n - n_i;   x = x_i;   for k:  x ← x - α g_i(x);   upload (x - x_i)/(1 + a)^q;   x_i ← z;   n_i ← n
    server:  z ← z + η_g · mean of what was uploaded;   n ← n + 1;   broadcast z

with a subgradient of h in every g_i (ours, as in fedopt.py: what steps of different weight do to a prox is not known
beforehand).  q = 1/2 is the authors'.  So this is FedBuff with a buffer of S, in which all N clients are at work at any
time and anyone may be the next to be done; a client that delivers while the buffer is not full yet takes the model as
it then is, and the one that fills it is treated alike.  Training at the time of delivery from the model of the time of
the start is also how the authors' simulator works (facebookresearch/FLSim), which divides the weights by that of a mean
staleness, a matter of η_g.

What asynchrony is for, that nobody waits, is not simulated: rounds have no length here, and in a deployment this method
waits for its cohort as all others do.  With all clients in every round it is FedAvg with gradients one round old.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedcef.algorithms.algorithm import Message, Oracle, State, Vector
from fedcef.algorithms.fedavg import FedAvg
from fedcef.algorithms.local_steps import gradient_steps
from fedcef.core.ranges import NonNegative
from fedcef.core.rng import Key
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedBuff(FedAvg):
    """FedAvg with stale changes, as in buffered asynchronous averaging."""

    discount: NonNegative = 0.5
    """q: a change that is a steps old counts 1/(1 + a)^q; 0 counts all alike."""
    composite: Literal["server_prox", "subgradient"] = "subgradient"

    keeps_updates: ClassVar[bool] = False
    asynchronous: ClassVar[bool] = False  # its staleness is of rounds
    takes_rules: ClassVar[bool] = False  # changes of different age are of different length

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "n": z0.new_zeros(1)}

    def client_init(self, z0: Vector) -> State:
        return {"x_i": z0, "n_i": z0.new_zeros(1)}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        x_i, n_i = client["x_i"], client["n_i"]
        x = gradient_steps(self, x_i, self.local_oracle(oracle)).x
        weight = (1 + replica["n"] - n_i) ** -self.discount
        taken = {"x_i": replica["z"].expand_as(x_i).clone(), "n_i": replica["n"].expand_as(n_i).clone()}
        return {"change": Dense(weight * (x - x_i))}, taken

    def advance(self, replica: State, down: Message) -> State:
        return {"z": down["z"].dense(), "n": replica["n"] + 1}
