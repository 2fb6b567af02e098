"""A round of the simulator as one CUDA graph: its thousands of kernels are launched by a single call.

What changes from round to round is in memory of its own that the graph reads and, at its end, overwrites: the states
and the round's number.  The recording is of `Simulation.play` as it is; no algorithm knows of it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message, State

if TYPE_CHECKING:
    from fedcef.simulation.simulation import Simulation

PARTS = ("replica", "server", "clients", "ledger")


class CapturedRounds:
    """The recordings of a simulation's rounds: one, or one for each level of a byte budget.

    The first round of a level is played as it is written, which loads its kernels; the second is recorded.  All
    recordings work on the same memory.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._played: set[int] = set()
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Message]] = {}
        self._buffers: State = {}
        self._round = torch.zeros((), dtype=torch.int64, device=simulation.problem.z0.device)

    def play(self, level: int) -> Message:
        """The simulation's next round; its down-message is good until the one after."""
        simulation = self._simulation
        self._round.fill_(simulation.round)
        if level not in self._played:
            self._played.add(level)
            return simulation.play(self._round)
        self._move_in()
        if level not in self._graphs:
            self._graphs[level] = self._record()
        graph, down = self._graphs[level]
        graph.replay()
        return down

    def __len__(self) -> int:
        return len(self._graphs)

    def _move_in(self) -> None:
        """Put the states where the graphs expect them; after a replay they are there."""
        states = take(self._simulation)
        if not self._buffers:
            self._buffers = {name: tensor.clone() for name, tensor in states.items()}
        # copied twice: a new state may lie in the memory of another old one
        moved = {name: t.clone() for name, t in states.items() if t is not self._buffers[name]}
        for name, tensor in moved.items():
            self._buffers[name].copy_(tensor)
        put(self._simulation, self._buffers)

    def _record(self) -> tuple[torch.cuda.CUDAGraph, Message]:
        simulation, buffers = self._simulation, self._buffers
        graph = torch.cuda.CUDAGraph()
        # scratch memory can be shared: only one graph runs at a time, and nothing in it outlives the next round
        pool = next(iter(self._graphs.values()))[0].pool() if self._graphs else None
        with _no_collection(), torch.cuda.graph(graph, pool=pool):
            down = simulation.play(self._round)
            after = take(simulation)
            own = {tensor.data_ptr() for tensor in buffers.values()}
            # a new state that lies in an old one's memory must be saved before that is overwritten
            after = {n: t.clone() if t.data_ptr() in own and t is not buffers[n] else t for n, t in after.items()}
            for name, buffer in buffers.items():
                if after[name] is not buffer:
                    buffer.copy_(after[name])
        put(simulation, buffers)  # recording does not compute: the states are still those of before
        return graph, down


def take(simulation: Simulation) -> State:
    """All state of a simulation that is on its device, under flat names."""
    state = simulation.state()
    flat = {f"{part}/{name}": tensor for part in PARTS for name, tensor in state[part].items()}
    return {**flat, "finite": simulation.finite}


def put(simulation: Simulation, flat: State) -> None:
    """Let a simulation go on from a state as `take` gave it."""

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in flat.items() if name.startswith(prefix)}

    simulation.replica, simulation.server, simulation.clients = part("replica/"), part("server/"), part("clients/")
    simulation.ledger.restore(part("ledger/"))
    simulation.finite = flat["finite"]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect garbage now and not during a recording, which freeing an earlier simulation's graph may spoil."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
