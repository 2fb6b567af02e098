"""The state of a simulated run: a value, which a round turns into the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, State
from fedcef.algorithms.statistics import STATISTICS
from fedcef.simulation.averaging import started
from fedcef.simulation.client_states import ClientStates, States, Table
from fedcef.simulation.ledger import Ledger
from fedcef.simulation.network.clock import Clock
from fedcef.simulation.spending import Spending


@dataclass(frozen=True, eq=False)
class RunState:
    """Everything that the next round depends on besides its number, by who holds it."""

    replica: State
    """What the server and every up-to-date client know alike."""
    server: State
    """What the server alone knows."""
    clients: ClientStates
    """What each client alone knows."""
    ledger: Ledger
    """The bytes so far."""
    average: State
    """The running mean of the rounds' models, if one is asked for."""
    finite: Tensor
    """Whether all numbers have been finite so far: a 0-dim bool on the device."""
    spending: Spending | None = None
    """What a byte budget remembers; on the host."""
    clock: Clock | None = None
    """What time it is on a simulated network; on the host."""

    @classmethod
    def start(
        cls,
        algorithm: Algorithm,
        z0: Tensor,
        num_clients: int,
        client_states: States = Table,
        *,
        averaging: bool = False,
        kept: State | None = None,
    ) -> RunState:
        """The state before the first round; `kept` is what the server remembers beside the method's own."""
        replica = algorithm.replica_init(z0)
        return cls(
            replica=replica,
            server={**algorithm.server_init(z0), **(kept or {})},
            clients=client_states.start(algorithm.client_init(z0), num_clients),
            ledger=Ledger.empty(num_clients, z0.device),
            average=started(z0, replica.get(STATISTICS)) if averaging else {},
            finite=torch.ones((), dtype=torch.bool, device=z0.device),
        )

    def parts(self) -> dict[str, State]:
        """The named tensors of each part, as a snapshot keeps them."""
        return {
            "replica": self.replica,
            "server": self.server,
            "clients": self.clients.tensors(),
            "ledger": self.ledger.state(),
            **({"average": self.average} if self.average else {}),
        }

    def with_parts(self, parts: Mapping[str, State]) -> RunState:
        """The state with the tensors that `parts` gave, on this state's device; its numbers count as finite.

        Raises ValueError if they are of another problem or method.
        """
        mine = self.parts()
        for part in ("replica", "server"):
            for name, wanted in mine[part].items():
                tensor = parts.get(part, {}).get(name)
                if tensor is None or tensor.shape != wanted.shape or tensor.dtype != wanted.dtype:
                    raise ValueError(f"{part}/{name} differs")
        here = {
            part: {name: tensor.to(self.finite.device) for name, tensor in parts.get(part, {}).items()} for part in mine
        }
        ledger = self.ledger.with_state(here["ledger"])
        return RunState(
            replica=here["replica"],
            server=here["server"],
            clients=self.clients.with_tensors(here["clients"]),
            ledger=ledger,
            average=here.get("average", {}),
            finite=torch.ones_like(self.finite),
            spending=self.spending,
            clock=self.clock,
        )

    def tensors(self) -> State:
        """All tensors under flat names: "replica/z", "clients/c_i", …, "finite"."""
        flat = {f"{part}/{name}": tensor for part, state in self.parts().items() for name, tensor in state.items()}
        return {**flat, "finite": self.finite}

    def clone(self) -> RunState:
        """The same state in memory of its own."""
        replica, server, average = (
            {name: tensor.clone() for name, tensor in part.items()}
            for part in (self.replica, self.server, self.average)
        )
        return replace(
            self,
            replica=replica,
            server=server,
            clients=self.clients.copied(),
            ledger=self.ledger.copied(),
            average=average,
            finite=self.finite.clone(),
        )
