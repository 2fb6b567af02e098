"""One round of the simulator: every algorithm, all clients of the cohort at once, as a pure function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from fedcef.algorithms.aggregating import Aggregator, own_state
from fedcef.algorithms.algorithm import Algorithm, Message, State
from fedcef.algorithms.received import Received
from fedcef.algorithms.statistics import STATISTICS
from fedcef.core.round import Round, Rounds
from fedcef.oracles.oracle import GradientOracle
from fedcef.simulation.attacks import Attacker
from fedcef.simulation.averaging import running_mean
from fedcef.simulation.ledger import Sizes
from fedcef.simulation.state import RunState
from fedcef.simulation.workers import Proposed, Whole, Workers, all_finite, commit

Play = Callable[[RunState, int], tuple[RunState, Message]]
"""play(state, t): the state after round t, and the round's down-message."""


@dataclass(frozen=True, eq=False)
class Engine:
    """What does not change from round to round; `play` turns one state into the next.

    A recording of a CUDA graph, a byte budget that rehearses rounds and a solver that goes back to an earlier point are
    plain callers of `play`.
    """

    algorithm: Algorithm
    rounds: Rounds
    gradients: GradientOracle
    weights: Callable[[Tensor], Tensor] | None = None
    """How these clients count in the mean, (S,) -> (S,); None = alike."""
    workers: Workers = Whole()
    """How the clients' work is done: all at once, or some at a time, here or elsewhere."""
    aggregator: Aggregator = Aggregator()
    """What makes the mean, or what stands for it."""
    attacker: Attacker | None = None
    """Clients that lie, if there are any."""

    def play(self, state: RunState, number: int | Tensor) -> tuple[RunState, Message]:
        """Do the round of this number: tensor operations only, nothing is read back if the number is on the device."""
        round_ = self.rounds.at(number)
        up, proposed = self.workers.work(self, state, round_)
        after, down, _ = self.close(state, round_, up, proposed, self.rounds.cohort(round_.number + 1))
        return after, down

    def close(
        self,
        state: RunState,
        round_: Round,
        up: Message,
        proposed: Proposed,
        listeners: Tensor,
        received: Received | None = None,
    ) -> tuple[RunState, Message, Sizes]:
        """The end of a round whose clients' messages are all here; `listeners` take part in the next one.

        The server's step is from what it has `received`, by default from all these messages and by the run's weights.
        Returns the state after the round, its down-message, and the bytes of our own format.
        """
        algorithm = round_.scheduled(self.algorithm)
        kept: State = {}
        if received is None:
            arrived = up if self.attacker is None else self.attacker.sent(up, round_, state.server)
            weights = None if self.weights is None else self.weights(round_.clients)
            received, kept = self.aggregator.received(arrived, round_, state.server, weights)
        down, server = algorithm.server_step(own_state(state.server), state.replica, received)
        replica = algorithm.advance(state.replica, down)
        told = self.told(round_)
        settle = None if told is None else partial(algorithm.settled, replica=replica)
        clients, finite = commit(state.clients, round_.clients, proposed, settle)
        contexts = algorithm.contexts(state.replica)
        sizes = state.ledger.sizes(up, down, replica, listeners, contexts, alone=algorithm.stands_alone)
        after = RunState(
            replica=replica,
            server={**server, **kept},
            clients=clients,
            ledger=state.ledger.add(*sizes, listeners, told),
            average=running_mean(
                state.average,
                algorithm.trained(replica, server),
                round_.number,
                self.rounds.training.averaging,
                replica.get(STATISTICS),
            ),
            finite=state.finite & all_finite(replica) & finite,
            spending=state.spending,
        )
        return after, down, sizes[0]

    def told(self, round_: Round) -> Tensor | None:
        """The clients that are told how their round ended, if the method asks for it and not everyone hears anyway."""
        return round_.clients if self.algorithm.hears_the_end and round_.share < 1 else None

    def work(self, state: RunState, round_: Round) -> tuple[Message, State]:
        """The up-messages of the round's clients, and the states they then propose: all at once, here."""
        return self.local(state.replica, state.clients.take(round_.clients), round_)

    def local(self, replica: State, mine: State, round_: Round) -> tuple[Message, State]:
        """What the clients of a round do that have these states; nothing is committed."""
        algorithm = round_.scheduled(self.algorithm)
        oracle = self.gradients.for_round(round_, algorithm.local_steps, statistics=replica.get(STATISTICS))
        return algorithm.local(replica, mine, oracle, round_.compression)

    @property
    def wants_means(self) -> bool:
        """Whether, of dense messages, their plain mean is all that the round's end needs."""
        return self.weights is None and self.is_plain and not self.algorithm.counts_alike and not self.drops

    @property
    def drops(self) -> bool:
        """Whether clients of a cohort may come too late, so that their messages and states are not the round's."""
        network = self.rounds.training.network
        return network is not None and (network.deadline > 0 or network.over_selection > 1)

    @property
    def is_plain(self) -> bool:
        """Whether the server takes a mean, and nobody lies: such rounds can be recorded as CUDA graphs."""
        return self.aggregator.is_mean and self.attacker is None
