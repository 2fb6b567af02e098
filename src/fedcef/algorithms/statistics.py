"""Running statistics that travel with a model: any method, with one more vector in its replica and in its messages.

    replica     … and statistics, (q,)
    client      moves them on from the server's, by every pass that a gradient takes; uploads them whole
    server      statistics ← the mean of the clients', weighted as the method's own mean is; broadcasts them whole

The method itself sees none of it: not its state, nor its parts of messages, nor what it compresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fedcef.algorithms.algorithm import Algorithm, Message, Oracle, Received, State, Vector
from fedcef.compressors.grid import Grid
from fedcef.compressors.private import Private
from fedcef.core.errors import ConfigError
from fedcef.core.rng import Key
from fedcef.wire import Dense

STATISTICS = "statistics"
"""The name of the vector in a replica, and of the part in a message."""


def carrying(algorithm: Algorithm, statistics: Vector) -> Algorithm:
    """The method for a model that begins with these statistics, (q,); the method itself if there are none."""
    if not len(statistics):
        return algorithm
    if isinstance(algorithm.compressor, Private | Grid):
        section = "[privacy]" if isinstance(algorithm.compressor, Private) else "[secure]"
        raise ConfigError(
            f"{section} covers what goes through a compressor, and running statistics do not; take buffers = 'frozen', "
            f"'local' or group normalisation, or leave {section} out."
        )
    kind = type(algorithm)
    made: Any = dataclass(frozen=True, kw_only=True, eq=False)(
        type(kind.__name__, (_Carrying, kind), {"__module__": kind.__module__})
    )
    options = {field.name: getattr(algorithm, field.name) for field in fields(algorithm)}
    carried: Algorithm = made(**options, statistics=statistics)
    return carried


@dataclass(frozen=True, kw_only=True, eq=False)
class _Carrying(Algorithm):
    """Comes before a method among the bases of a class, and deals with the statistics around it."""

    statistics: Vector
    """What the run begins with, (q,)."""

    def replica_init(self, z0: Vector) -> State:
        return {**super().replica_init(z0), STATISTICS: self.statistics}  # type: ignore[safe-super]

    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        up, proposed = super().local(_without(replica), client, oracle, key)  # type: ignore[safe-super]
        moved: Vector = getattr(oracle, STATISTICS, replica[STATISTICS])  # a rehearsal's oracle has none
        return {**up, STATISTICS: Dense(moved)}, proposed

    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        own = replace(received, mean=_without(received.mean), stacks=_without(received.stacks))
        down, server = super().server_step(server, _without(replica), own)  # type: ignore[safe-super]
        return {**down, STATISTICS: Dense(received.mean[STATISTICS])}, server

    def advance(self, replica: State, down: Message) -> State:
        after = super().advance(_without(replica), {name: down[name] for name in down if name != STATISTICS})
        return {**after, STATISTICS: down[STATISTICS].dense()}


def _without(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if name != STATISTICS}
