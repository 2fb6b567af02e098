"""Data parallelism: one optimiser, which steps by the mean of all workers' gradients.

What methods with local steps are measured against: nothing is saved, and nothing drifts.

    client:  upload g_i(z), the mean of K minibatch gradients
    server:  g = mean g_i;   d = update(g);   z ← prox(z - β d);   broadcast z,      β = α·η_g·K

The update is the setting `local_update`, of which there is but one here: the server has its memory, from the first
round to the last.  With AdamW this is AdamW on N times the batch, with SGD and K = 1 it is FedSGD (McMahan et al. 2017)
and DiLoCo with outer SGD.  A round is one step: where others take K local steps, it takes K times as many rounds
(local_steps = 1) for as many steps on as many samples.  Proximal steps are in the update's metric, as long as its steps
(docs/algorithms.md, 13.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from fedcef.algorithms.algorithm import Algorithm, Message, Oracle, Received, State, Vector
from fedcef.algorithms.local_steps import mean_gradient
from fedcef.core.rng import Key
from fedcef.optimizers import LocalUpdate
from fedcef.optimizers.tuned import TunedUpdate
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class DataParallel(Algorithm):
    """One optimiser on the server, fed with the mean gradient."""

    steps_locally: ClassVar[bool] = True  # there is a place for the update, though the server takes the step
    keeps_updates: ClassVar[bool] = True
    takes_rules: ClassVar[bool] = True
    adds_up: ClassVar[tuple[str, ...] | None] = ()

    @property
    def takes_lengths(self) -> bool:
        return True

    @cached_property
    def optimizer(self) -> LocalUpdate:
        """The update, with a memory that lasts."""
        update = self.local_update
        return replace(update, memory="client") if isinstance(update, TunedUpdate) else update

    def replica_init(self, z0: Vector) -> State:
        return {"z": z0}

    def server_init(self, z0: Vector) -> State:
        return self.optimizer.init(z0)

    def client_init(self, z0: Vector) -> State:
        return {}

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        return {"gradient": Dense(mean_gradient(replica["z"], oracle, self.local_steps))}, {}

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        z, step = replica["z"], self.local_lr * self.server_lr * self.local_steps
        direction, server = self.optimizer.update(received.mean["gradient"], server, z, 0)
        reach = self.optimizer.reach(server, 0)
        z = self.regularizer.prox(z - step * direction, step if reach is None else step * reach)
        return {"z": Dense(z)}, server
