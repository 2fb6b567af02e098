"""What methods for smooth problems do about the regulariser h.

`server_prox` takes one proximal step on the server after aggregation: exact zeros, and a bias of O(αK) where clients
take several steps.  `subgradient` adds a subgradient of h to every local gradient: no exact zeros.  With h = 0 both are
the method as published.

The proximal step is as long as the round's gradient step: β for methods that average K local steps.  Those with a
penalty μ (FedDyn, FedPD, FedDC) step by η_g/μ along the mean dual; that length makes them exact, whatever K.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Literal

from fedcef.algorithms.algorithm import Algorithm, Oracle, Vector


@dataclass(frozen=True, kw_only=True, eq=False)
class SmoothMethod(Algorithm, ABC):
    """A method that was published for h = 0."""

    composite: Literal["server_prox", "subgradient"] = "server_prox"
    """How the regulariser enters."""

    def largest_prox_step(self, rounds: int) -> float:
        return self.step

    @property
    def takes_lengths(self) -> bool:
        return self.composite == "subgradient"

    def local_oracle(self, oracle: Oracle) -> Oracle:
        """The gradients for local steps."""
        if self.composite == "server_prox":
            return oracle
        return lambda x, k: oracle(x, k) + self.regularizer.subgradient(x)

    def server_prox(self, z: Vector) -> Vector:
        """The server's proximal step, where that is how h enters."""
        return self.regularizer.prox(z, self.step) if self.composite == "server_prox" else z
