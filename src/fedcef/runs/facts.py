"""Facts about a run that its records do not have: what every client holds, and what one message is made of.

They are kept in `facts.json` of the run folder, for the report:

    clients   samples of each client and, where targets are classes, how many of each class; quantiles if they are many
    data      what the data were found to be, where only that tells: the checksum of a text
    messages  the bytes of one message by direction and part: values, indices, and all else (heads, checksum)

The message up is a rehearsal: the clients of the last round work once more from the point where the run ended, and
nobody hears of it but the report, which looks at the first one's message.  The others are there because what a client
sends may depend on its place among them.  The message down is the last round's own.  Both are encoded and decoded
again, so that what is counted is real bytes: those of the plain code, where a run codes in contexts.  Nothing here
happens within a round.
"""

from __future__ import annotations

from typing import Any

import torch

from fedcef.algorithms.algorithm import Message
from fedcef.core.precision import matrix_units
from fedcef.problems.counting import count_holdings
from fedcef.problems.problem import Problem
from fedcef.simulation.simulation import Simulation
from fedcef.wire import FrameKind, Payload, Relay, Seeded, Sparse, WireError, decode, encode
from fedcef.wire.payload import COUNT, HEAD
from fedcef.wire.values.values import as_values

Facts = dict[str, Any]


def message_facts(simulation: Simulation, down: Message) -> Facts:
    """What a message up and the last message down are made of."""
    return {"up": _frame_facts(_rehearsed(simulation), FrameKind.UP), "down": _frame_facts(down, FrameKind.DOWN)}


def client_facts(problem: Problem) -> Facts:
    """How many samples every client has, in all and of each class; nothing of clients that would have to be read."""
    return count_holdings(problem).facts() if problem.data.captures else {}


def _rehearsed(simulation: Simulation) -> Message:
    """The message that the first client of the last round would send from where the run is now."""
    last = simulation.engine.rounds.at(simulation.round - 1)
    precision = matrix_units(simulation.training.precision)
    with torch.no_grad(), precision, simulation.on_device(), simulation.threads():
        engine = simulation.current_engine()
        return engine.workers.first_message(engine, simulation.state, last)


def _frame_facts(message: Message, kind: FrameKind) -> Facts:
    """The bytes of a frame by part, coded without contexts; nothing of one that cannot be sent."""
    try:
        frame = encode(message, kind, 0)
        parts = decode(frame).message
    except WireError:
        return {}
    return {"bytes": len(frame), "parts": [{"name": name, **_part(payload)} for name, payload in parts.items()]}


def _part(payload: Payload) -> Facts:
    """The form of a payload, and its bytes of values and of indices (or of the key that they are drawn from)."""
    if isinstance(payload, Relay):
        rows = [_part(row) for row in payload.parts.rows()]
        return {"form": "relay", **{what: sum(row[what] for row in rows) for what in ("values", "indices")}}
    form, size = type(payload).__name__.lower(), len(payload.encode())
    if not isinstance(payload, Sparse | Seeded):
        return {"form": form, "values": size - HEAD.size, "indices": 0}
    values = int(as_values(payload.values).nbytes())
    return {"form": form, "values": values, "indices": size - HEAD.size - COUNT.size - values}
