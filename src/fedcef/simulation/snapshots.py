"""The replica in one message, for those who missed more of the log than that."""

from __future__ import annotations

from fedcef.algorithms.algorithm import Message, State
from fedcef.wire import Dense
from fedcef.wire.forms.nonzeros import EveryBit


def whole(replica: State) -> Message:
    """The replica with all its entries."""
    return {name: Dense(vector) for name, vector in replica.items()}


def snapshot(replica: State) -> Message:
    """The replica without its zeros, as it is sent to clients that missed much.

    The sign of a negative zero is kept, which some proximal operators leave: who follows the log has it, and so must
    who takes the snapshot.
    """
    return {name: EveryBit(vector) for name, vector in replica.items()}
