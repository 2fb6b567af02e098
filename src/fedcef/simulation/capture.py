"""A round of the simulator as one CUDA graph: its thousands of kernels are launched by a single call.

What changes from round to round is in memory of its own that the graph reads and, at its end, overwrites: the states
and the round's number.  The recording is of `Simulation.play` as it is; no algorithm knows of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedcef.algorithm import Message, State

if TYPE_CHECKING:
    from fedcef.simulation.engine import Simulation


class CapturedRound:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._round = torch.full((), simulation.round, dtype=torch.int64, device=simulation.problem.z0.device)
        before = _take(simulation)
        buffers = {name: tensor.clone() for name, tensor in before.items()}
        _put(simulation, buffers)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._down: Message = simulation.play(self._round)
            after = _take(simulation)
            own = {tensor.data_ptr() for tensor in buffers.values()}
            # a new state that lies in an old one's memory must be saved before that is overwritten
            after = {n: t.clone() if t.data_ptr() in own and t is not buffers[n] else t for n, t in after.items()}
            for name, buffer in buffers.items():
                if after[name] is not buffer:
                    buffer.copy_(after[name])
            self._round.add_(1)
        _put(simulation, buffers)  # recording does not compute: the states are still those of before

    def replay(self) -> Message:
        """The next round; its down-message is good until the one after."""
        self._graph.replay()
        return self._down


def _take(simulation: Simulation) -> State:
    """All state of a simulation under flat names."""
    flat = {f"{part}/{name}": tensor for part, state in simulation.state().items() for name, tensor in state.items()}
    return {**flat, "finite": simulation.finite}


def _put(simulation: Simulation, flat: State) -> None:
    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in flat.items() if name.startswith(prefix)}

    simulation.replica, simulation.server, simulation.clients = part("replica/"), part("server/"), part("clients/")
    simulation.ledger.restore(part("ledger/"))
    simulation.finite = flat["finite"]
