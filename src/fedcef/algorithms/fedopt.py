"""What FedAvg's variants with a server update of their own share.

They are FedAvg with that update in place of the plain mean, under the names that they have in the literature, and with
the update's options as theirs:

    client:  x = z;   for k:  x ← x - α g_i(x);   upload x - z
    server:  z ← prox_{βh}(z + η_g · the update's step for mean (x - z));   broadcast z

A server that scales entries (FedAdam, FedYogi, FedAdagrad) takes subgradients of h into the local steps unless told
otherwise.  A proximal step of one length for all entries does not go with steps of another length in each: at FedAdam's
limit, where √v is the size of the mean change, h would count about τ times.  Where the mean change is 0, no update
moves anything: without h, or with subgradients, the limit is FedAvg's.

Other methods whose server steps by a mean change take the same updates by the setting `server_update`.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from fedcef.algorithms.algorithm import Message, Received, State, Vector
from fedcef.algorithms.fedavg import FedAvg
from fedcef.core.errors import ConfigError
from fedcef.core.parts import options_of
from fedcef.core.ranges import Positive
from fedcef.optimizers import Memory, Plain, ServerUpdate
from fedcef.wire import Dense


@dataclass(frozen=True, kw_only=True, eq=False)
class FedOpt(FedAvg, ABC):
    """FedAvg with a server update of its own: a subclass names its kind, and has the kind's options as fields."""

    kind: ClassVar[type[ServerUpdate]]
    """Of the update."""
    steps_by_mean: ClassVar[bool] = False  # by its own update: there is no place for another

    def __post_init__(self) -> None:
        if not isinstance(self.server_update, Plain):
            raise ConfigError(
                f"{type(self).__name__} has a server update of its own; leave the other out, or take FedAvg with it."
            )
        super().__post_init__()
        _ = self.own_update  # options out of range are refused here and not in the first round

    @cached_property
    def own_update(self) -> ServerUpdate:
        """The update that is the method's own, from the method's options."""
        return self.kind(**{name: getattr(self, name) for name in options_of(self.kind)})

    @property
    def step(self) -> float:
        return super().step * self.own_update.gain

    def server_init(self, z0: Vector) -> State:
        return self.own_update.init(z0)

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        step, server = self.own_update.update(received.mean["change"], server)
        return {"z": Dense(self.server_prox(replica["z"] + self.server_lr * step))}, server


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptiveFedOpt(FedOpt, ABC):
    """FedAvg with a server that scales every entry by its history."""

    momentum: Memory = 0.9
    """b_1: how much of the mean change is remembered."""
    floor: Positive = 1e-3
    """τ, which keeps the divisor away from 0; the smaller, the more the steps adapt."""
    composite: Literal["server_prox", "subgradient"] = "subgradient"
