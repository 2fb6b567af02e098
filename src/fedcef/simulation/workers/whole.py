"""All clients of the cohort at once, in this process.

On a GPU that means in a few parts, one beside the other: while one part waits for memory or launches small kernels, the
other keeps the matrix units busy.  A client's numbers do not depend on who is computed beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from fedcef.algorithms.algorithm import Message, State
from fedcef.core.round import Round
from fedcef.simulation.state import RunState
from fedcef.simulation.workers.chunked import part_of
from fedcef.simulation.workers.stacks import joined
from fedcef.simulation.workers.workers import Proposed, Workers

if TYPE_CHECKING:
    from fedcef.simulation.engine import Engine

_FEW = 4  # clients of a part, at least: fewer leave the GPU idle


class Whole(Workers):
    """The cohort as one table."""

    captures: ClassVar[bool] = True

    def work(self, engine: Engine, state: RunState, round_: Round) -> tuple[Message, Proposed]:
        parts = min(engine.gradients.parts, len(round_.clients) // _FEW)
        return engine.work(state, round_) if parts < 2 else _side_by_side(engine, state, round_, parts)


def _side_by_side(engine: Engine, state: RunState, round_: Round, parts: int) -> tuple[Message, State]:
    """The cohort in parts, each on a stream of its own."""
    mine, size = state.clients.take(round_.clients), -(-len(round_.clients) // parts)
    main = torch.cuda.current_stream(round_.clients.device)
    found: list[tuple[Message, State]] = []
    streams = []
    for start in range(0, len(round_.clients), size):
        places = slice(start, start + size)
        streams.append(torch.cuda.Stream(main.device))  # type: ignore[no-untyped-call]
        streams[-1].wait_stream(main)
        with torch.cuda.stream(streams[-1]):
            rows = {name: table[places] for name, table in mine.items()}
            found.append(engine.local(state.replica, rows, part_of(round_, places)))
    for stream in streams:  # nothing is done on the main stream until then, so that no part's memory is used again
        main.wait_stream(stream)
    messages, states = zip(*found, strict=True)
    up = {name: joined([message[name] for message in messages]) for name in messages[0]}
    return up, {name: torch.cat([of_part[name] for of_part in states]) for name in states[0]}
