"""A compressor that the run chooses by itself."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcef.compressors.compressor import Compressor
from fedcef.compressors.sparsifiers import TopK
from fedcef.core.ranges import UnitInterval
from fedcef.core.rng import Key
from fedcef.wire import Payload

UNTIL_CHOSEN = TopK(ratio=0.01, values="log3")
"""What stands in for it until something has been measured."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Auto(Compressor):
    """Top-k whose ratio and values a run chooses from its first rounds, for its byte budget or for a target accuracy.

    The simulator puts the chosen compressor in its place, and one on the way down where the method can have one
    (simulation/choosing.py).  By itself it is Top-1%.
    """

    target: UnitInterval = 0.0
    """The test accuracy at which the run stops; 0 = none, and then there must be a budget."""

    def compress(self, x: Tensor, key: Key) -> Payload:
        """As Top-1%."""
        return UNTIL_CHOSEN.compress(x, key)

    def contraction(self, dim: int) -> float:
        """That of Top-1%."""
        return UNTIL_CHOSEN.contraction(dim)
