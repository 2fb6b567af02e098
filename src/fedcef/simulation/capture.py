"""A round of the simulator as one CUDA graph: its thousands of kernels are launched by a single call.

What changes from round to round is in memory of its own that the graph reads and, at its end, overwrites: the states
and the round's number.  The recording is of a pure `play` as it is; no algorithm knows of it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Message
from fedcef.simulation.state import RunState


class Memory:
    """Where recorded rounds find their state and leave the next; all recordings of a run work on the same."""

    def __init__(self, device: torch.device) -> None:
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool: Any = None  # scratch memory of the graphs
        self._state: RunState | None = None

    @property
    def state(self) -> RunState:
        """The state that lies here."""
        assert self._state is not None, "a state is moved in before it is asked for"
        return self._state

    def move_in(self, state: RunState) -> RunState:
        """Put a state where the graphs expect it, and return it as it lies there; after a replay it is there."""
        if self._state is None:
            self._state = state.clone()
        elif state is not self._state:
            mine = self._state.tensors()
            # copied twice: a new state may lie in the memory of another old one
            moved = {name: t.clone() for name, t in state.tensors().items() if t is not mine[name]}
            for name, tensor in moved.items():
                mine[name].copy_(tensor)
        return self._state


class Captured:
    """A `play` that is recorded once and then replayed; it overwrites the state that it is given back.

    The first call plays as it is written, which loads its kernels; the second is recorded.
    """

    def __init__(self, play: Callable[[RunState, int | Tensor], tuple[RunState, Message]], memory: Memory) -> None:
        self._play, self._memory = play, memory
        self._loaded = False
        self._recorded: tuple[torch.cuda.CUDAGraph, Message] | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether there is a recording yet."""
        return self._recorded is not None

    def __call__(self, state: RunState, number: int) -> tuple[RunState, Message]:
        """The state after the round, and the down-message; both are good until the next call."""
        memory = self._memory
        memory.number.fill_(number)
        if not self._loaded:
            self._loaded = True
            after, down = self._play(state, memory.number)
            return memory.move_in(after), down
        memory.move_in(state)
        if self._recorded is None:
            self._recorded = self._record()
        graph, down = self._recorded
        graph.replay()
        return memory.state, down

    def _record(self) -> tuple[torch.cuda.CUDAGraph, Message]:
        memory, graph = self._memory, torch.cuda.CUDAGraph()
        # scratch memory can be shared: only one graph runs at a time, and nothing in it outlives the next round
        with _no_collection(), torch.cuda.graph(graph, pool=memory.pool, stream=memory.stream):
            after, down = self._play(memory.state, memory.number)
            buffers, new = memory.state.tensors(), after.tensors()
            own = {tensor.data_ptr() for tensor in buffers.values()}
            # a new state that lies in an old one's memory must be saved before that is overwritten
            new = {n: t.clone() if t.data_ptr() in own and t is not buffers[n] else t for n, t in new.items()}
            for name, buffer in buffers.items():
                if new[name] is not buffer:
                    buffer.copy_(new[name])
        memory.pool = memory.pool or graph.pool()
        return graph, down


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
