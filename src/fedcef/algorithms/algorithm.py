"""The contract between an algorithm and the engines that run it.

An algorithm is a frozen dataclass of hyper-parameters with a few pure functions on flat vectors.  The
simulator calls them with all clients stacked, (N, p); a deployed client calls the same functions with its
own vector, (p,).  So algorithm code is elementwise or reduces over the last axis, and never sees a list of
clients, a device, a file or a network.

One round:

    every participant   up, proposed = algorithm.local(replica, client, oracle, key)
    the engine          received     = the decoded up-messages and their mean
    the server          down, server = algorithm.server_step(server, replica, received)
    everyone            replica      = algorithm.advance(replica, down)
    the engine          client       = proposed, for those whose message is in the mean

The replica is what the server and every up-to-date client know alike; it is a fold of `advance` over the
log of down-messages.  See docs/design.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcef.algorithms.received import Received as Received
from fedcef.compressors import Compressor, Identity
from fedcef.core.ranges import Count, Positive
from fedcef.core.rng import Key
from fedcef.regularizers import Regularizer, Zero
from fedcef.wire import Payload

Vector = Tensor
"""(..., p): the last axis holds the parameters, leading axes (if any) the clients."""

State = dict[str, Vector]
Message = dict[str, Payload]

Oracle = Callable[[Vector, int], Vector]
"""oracle(x, k): each client's minibatch gradient at x on its k-th batch of this round.

x is (..., p), or (p,) where all clients stand at the same point; the result has the clients' axes and is the
caller's to overwrite.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Algorithm(ABC):
    """What every method has: step sizes, local steps, a regulariser and a compressor for the uplink."""

    local_lr: Positive = 0.1
    """α.  Under a schedule the engine puts a 0-dim tensor here, so nothing may depend on its value in Python."""
    server_lr: Positive = 1.0
    """η_g; as above."""
    local_steps: Count = 10
    regularizer: Regularizer = Zero()
    compressor: Compressor = Identity()

    partial_participation: ClassVar[bool] = True
    """Whether a round with some of the clients is defined for this method."""
    compresses: ClassVar[bool] = False
    """Whether the method has a place for a compressor."""
    adds_up: ClassVar[tuple[str, ...] | None] = None
    """The parts of up-messages of which replica or server keep a sum: the mean over the clients of all that each has
    sent so far.  If a client loses its state, what it had sent is taken out of its next message.  () if nothing of a
    lost state is left anywhere; None if that is not known, so that such a client cannot be let in again."""

    @property
    def step(self) -> float:
        """β = α·η_g·K: the length of one round's step, and of the proximal operator that goes with it."""
        return self.local_lr * self.server_lr * self.local_steps

    def largest_prox_step(self, rounds: int) -> float:
        """The longest proximal step in so many rounds; a weakly convex regulariser must allow it."""
        return max(self.step, (self.local_steps - 1) * self.local_lr)

    @abstractmethod
    def replica_init(self, z0: Vector) -> State:
        """What the server and every client know at the start."""

    def server_init(self, z0: Vector) -> State:
        """What the server alone knows at the start."""
        return {}

    def client_init(self, z0: Vector) -> State:
        """What one client alone knows at the start."""
        return {}

    @abstractmethod
    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        """A client's work in one round: its up-message, and the state it will have if that is accepted."""

    @abstractmethod
    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        """The down-message that ends the round, and the server's own state after it."""

    @abstractmethod
    def advance(self, replica: State, down: Message) -> State:
        """The replica after a round.  Deterministic; run by everyone on the decoded message."""

    def model(self, replica: State) -> Vector:
        """The point that is evaluated and deployed: (p,)."""
        return replica["z"]

    def diagnostics(self, replica: State, clients: State) -> dict[str, Tensor]:
        """Scalars worth a column in the record of a run."""
        return {}
