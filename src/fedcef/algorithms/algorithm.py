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
log of down-messages.  See docs/design.md; docs/extend.md writes a method in thirty lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor

from fedcef.algorithms.received import Received as Received
from fedcef.compressors import Compressor, Identity
from fedcef.core.errors import ConfigError
from fedcef.core.ranges import Count, Positive
from fedcef.core.rng import Key
from fedcef.optimizers import SGD, LocalUpdate, Plain, ServerUpdate
from fedcef.regularizers import Regularizer, Zero
from fedcef.wire import Contexts, Payload

Vector = Tensor
"""(..., p): the last axis holds the parameters, leading axes (if any) the clients."""

State = dict[str, Vector]
"""What a participant knows, by name."""

Message = dict[str, Payload]
"""What crosses the wire, by name: each part is decoded by its `dense()`."""

Oracle = Callable[[Vector, int], Vector]
"""oracle(x, k): each client's minibatch gradient at x on its k-th batch of this round.

x is (..., p), or (p,) where all clients stand at the same point; the result has the clients' axes and is the
caller's to overwrite.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Algorithm(ABC):
    """A method: its options as fields, one round of it as functions.

    A subclass defines `replica_init`, `local` and `server_step`, and overrides what else it needs.
    """

    local_lr: Positive = 0.1
    """α, the step size of the clients.  Under a schedule the engine puts a 0-dim tensor here, so nothing may depend on
    its value in Python."""
    server_lr: Positive = 1.0
    """η_g, the step size of the server; as above."""
    local_steps: Count = 10
    """K, the number of minibatch gradients that a client takes in a round."""
    regularizer: Regularizer = Zero()
    """h."""
    compressor: Compressor = Identity()
    """C, for the messages of the clients; only where the method `compresses`."""
    local_update: LocalUpdate = SGD()
    """What clients make of a gradient; only where the method `steps_locally`."""
    server_update: ServerUpdate = Plain()
    """What the server makes of the clients' mean change; only where the method `steps_by_mean`."""

    partial_participation: ClassVar[bool] = True
    """Whether a round with some of the clients is defined for this method."""
    compresses: ClassVar[bool] = False
    """Whether the method has a place for a compressor."""
    steps_locally: ClassVar[bool] = False
    """Whether the method has a place for a local update: clients take steps of their own, x ← x - α·direction."""
    steps_by_mean: ClassVar[bool] = False
    """Whether the method has a place for a server update: the server moves by η_g times the clients' mean change."""
    adds_up: ClassVar[tuple[str, ...] | None] = None
    """How a client that has lost its state can come back.

    Some methods keep, in the replica or on the server, a mean over all clients of everything that each has sent: in
    FedCEF c = mean c_i, where c_i is the sum of all Δ_i so far.  A client that starts anew with c_i = 0 would break
    that.  So for the parts of up-messages named here the server of a deployment remembers the sum of what each client
    has sent, and takes it out of the next message of a client that has lost its state.  () says that there is no such
    mean, so that a client may simply start anew; None that this is not known, so that it is not let in again.
    """

    asynchronous: ClassVar[bool] = False
    """Whether the server may step while others still work on an earlier replica: clients send a change of the model
    that they were handed and keep nothing that the server has a copy or a sum of, and the mean is all it needs."""

    takes_rules: ClassVar[bool] = False
    """Whether a rule that bounds what a few clients can do may take the place of their mean (aggregating.py): the
    server uses the mean as an estimate, and nothing else rests on its being one."""

    keeps_updates: ClassVar[bool] = False
    """Whether a client's state has a place for that of its local update, where that is kept from round to round."""

    hears_the_end: ClassVar[bool] = False
    """Whether, of a cohort, the participants must be told how their round ended, by `settled`; that is counted, too."""

    @property
    def stands_alone(self) -> bool:
        """Whether a down-message says everything: `advance` makes the same replica of it from any earlier one, so that
        a client that was away needs the last message and none of those it missed."""
        return False

    def __post_init__(self) -> None:
        name = type(self).__name__
        for field, kind in (("local_update", LocalUpdate), ("server_update", ServerUpdate)):
            if not isinstance(given := getattr(self, field), kind):
                raise ConfigError(
                    f"{field} is {given!r}; it must be a {kind.__name__} of fedcef.optimizers, such as "
                    f"{'AdamW()' if kind is LocalUpdate else 'Adam()'}."
                )
        if not (self.steps_locally or isinstance(self.local_update, SGD)):
            raise ConfigError(f"{name} has no local gradient steps and no place for a local update; leave it out.")
        if not (self.steps_by_mean or isinstance(self.server_update, Plain)):
            raise ConfigError(f"The server of {name} does not step by a mean change; leave the server update out.")
        if self.local_update.kept and not self.keeps_updates:
            raise ConfigError(f"Clients of {name} cannot keep an update's memory; take local_update.memory = 'round'.")
        self.check_metric()

    def check_metric(self) -> None:
        """Refuse a regulariser whose proximal steps in the local update's metric are not closed, or not taken."""
        metric, h = self.local_update.metric, self.regularizer
        if metric == "plain" or isinstance(h, Zero):
            return
        update, name = type(self.local_update).__name__, type(self).__name__
        others = "or an update that scales all entries alike"
        if hasattr(self.local_update, "proximal"):
            others = "another update, or local_update.proximal = 'decoupled'"
        if metric == "none":
            raise ConfigError(
                f"Steps of {update} have no metric in which a proximal step is closed; leave the regulariser out, or "
                "take local_update.proximal = 'decoupled'."
            )
        if not h.elementwise:
            inner = type(getattr(h, "inner", h)).__name__
            raise ConfigError(
                f"The proximal operator of {inner} is not closed in the metric of {update}, which scales every entry "
                f"by itself; take l1, elastic_net or box, {others}."
            )
        if not self.takes_lengths:
            raise ConfigError(
                f"Proximal steps of {name} have one length for all entries, and {update} scales every entry by itself; "
                f"take FedCEF, algorithm.composite = 'subgradient' where there is that option, {others}."
            )

    @property
    def takes_lengths(self) -> bool:
        """Whether proximal steps follow a local update that scales every entry by itself."""
        return False

    @property
    def compressors_used(self) -> tuple[str, ...]:
        """The fields whose compressors play a part, as the other options are."""
        return ("compressor",) if self.compresses else ()

    @property
    def counts_alike(self) -> bool:
        """Whether all clients of a round must count alike, so that there is no weighting by samples."""
        return False

    @property
    def step(self) -> float:
        """β = α·η_g·K: the length of one round's step, and of the proximal operator that goes with it.

        Updates that repeat their steps, on the server or on the clients, make it longer by their gains.
        """
        gain = self.server_update.gain * self.local_update.gain(self.local_steps)
        return self.local_lr * self.server_lr * self.local_steps * gain

    def largest_prox_step(self, rounds: int) -> float:
        """The longest proximal step in so many rounds; a weakly convex regulariser must allow it."""
        gain = self.local_update.gain(self.local_steps)
        return max(self.step, (self.local_steps - 1) * self.local_lr * gain)

    def for_share(self, share: float) -> Self:
        """The method for rounds of this share S/N of all clients, as planned; most need not know it."""
        return self

    def in_round(self, number: Tensor) -> Self:
        """The method in the round of this number, () int64 on the device; most need not know it."""
        update = self.local_update.after(number * self.local_steps)
        return self if update is self.local_update else replace(self, local_update=update)

    def carried(self, state: State) -> State:
        """A local update's state as part of a client's, if it is kept; {} otherwise."""
        return {f"local_{name}": vector for name, vector in state.items()} if self.local_update.kept else {}

    def resumed(self, client: State) -> State | None:
        """The local update's state as a client kept it; None if it starts anew."""
        if not self.local_update.kept:
            return None
        return {name.removeprefix("local_"): vector for name, vector in client.items() if name.startswith("local_")}

    @abstractmethod
    def replica_init(self, z0: Vector) -> State:
        """What the server and every client know at the start."""

    def server_init(self, z0: Vector) -> State:
        """What the server alone knows at the start: the state of its update, which is none for the plain mean."""
        return self.server_update.init(z0)

    def client_init(self, z0: Vector) -> State:
        """What one client alone knows at the start: the state of its local update, if that is kept."""
        return self.carried(self.local_update.init(z0)) if self.local_update.kept else {}

    @abstractmethod
    def local(self, replica: State, client: State, oracle: Oracle, key: Key) -> tuple[Message, State]:
        """A client's work in one round: its up-message, and the state it will have if that is accepted."""

    @abstractmethod
    def server_step(self, server: State, replica: State, received: Received) -> tuple[Message, State]:
        """The down-message that ends the round, and the server's own state after it."""

    def advance(self, replica: State, down: Message) -> State:
        """The replica after a round; without an override each of its vectors is the message's part of that name.

        Deterministic; run by everyone on the decoded message.
        """
        return {name: down[name].dense() for name in replica}

    def contexts(self, replica: State) -> Contexts:
        """What the parts of a round's messages are coded with, both ways, from the replica before the round."""
        return {}

    def settled(self, client: State, replica: State) -> State:
        """A participant's state once it knows the replica in which its round ended; only where it `hears_the_end`."""
        return client

    def model(self, replica: State) -> Vector:
        """The point that everyone knows as the model: (p,)."""
        return replica["z"]

    def trained(self, replica: State, server: State) -> Vector:
        """The point that the server evaluates and deploys, (p,): the model, unless it has a better one to itself."""
        return self.model(replica)

    def diagnostics(self, replica: State, mean: State) -> dict[str, Tensor]:
        """Scalars worth a column in the record of a run, from the replica and the mean of all clients' states."""
        return {}
