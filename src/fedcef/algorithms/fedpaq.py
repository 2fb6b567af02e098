"""FedPAQ: FedAvg with compressed changes.

Reisizadeh et al. 2020 (arXiv 1909.13014), reconstructed: the paper was not at hand.

    client:  x = z;   for k:  x ← x - α g_i(x);   upload C(x - z)
    server:  z ← prox_{βh}(z + η_g · mean C(x - z));   broadcast z

The authors' C is unbiased (`randk` with `unbiased` here), η_g = 1, and there is no memory.  Rand-k draws one support
for all, so that it acts on the mean change: the limit is FedAvg's, off by O(αK) where clients differ.  A biased C, like
Top-k, is accepted, but its limit is off by an amount that does not shrink with the step.  The prox is ours (see
smooth.py).

Ours, too: with `model_bits` the server broadcasts z in so many bits an entry (coded_model.py) and keeps z itself.
Clients start from what they got; with C = identity this is FedAvg with a coded broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedcef.algorithms.algorithm import Message, Oracle, Received, State, Vector
from fedcef.algorithms.coded_model import ModelBits, coded, decoded
from fedcef.algorithms.fedavg import FedAvg
from fedcef.core.rng import Key


@dataclass(frozen=True, kw_only=True, eq=False)
class FedPAQ(FedAvg):
    """FedAvg with compressed changes, without memory."""

    model_bits: ModelBits = 0
    """Bits for an entry of the model on its way down; 0 = all that it has."""

    compresses: ClassVar[bool] = True

    @property
    def stands_alone(self) -> bool:
        return self.model_bits > 0

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0, "start": z0} if self.model_bits else {"z": z0}

    def server_init(self, z0: Vector) -> State:
        return {**super().server_init(z0), **({"z": z0} if self.model_bits else {})}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        up, kept = super().local(replica, client, oracle, key)
        return {"change": self.compressor.compress(up["change"].dense(), key)}, kept

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        if not self.model_bits:
            return super().server_step(server, replica, received)
        own = {name: vector for name, vector in server.items() if name != "z"}
        down, own = super().server_step(own, {"z": server["z"]}, received)
        z = down["z"].dense()
        return coded(z, replica["start"], self.model_bits, Key(received.key, received.key)), {"z": z, **own}

    def advance(self, replica: State, down: Message) -> State:
        if not self.model_bits:
            return super().advance(replica, down)
        return {"z": decoded(down, replica["start"]), "start": replica["start"]}

    def trained(self, replica: State, server: State) -> Vector:
        return server["z"] if self.model_bits else replica["z"]
