"""All clients of the cohort at once, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fedcef.algorithms.algorithm import Message
from fedcef.core.round import Round
from fedcef.simulation.state import RunState
from fedcef.simulation.workers.workers import Proposed, Workers

if TYPE_CHECKING:
    from fedcef.simulation.engine import Engine


class Whole(Workers):
    """The cohort as one table."""

    captures: ClassVar[bool] = True

    def work(self, engine: Engine, state: RunState, round_: Round) -> tuple[Message, Proposed]:
        return engine.work(state, round_)
