"""What server and clients compute alike: the method of every round, and how a replica follows the log."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch

from fedcef.algorithms.aggregating import Aggregator, check_rule
from fedcef.algorithms.algorithm import State
from fedcef.algorithms.statistics import carrying
from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.core.threads import is_small
from fedcef.problems.problem import Problem
from fedcef.runs.settings import Settings
from fedcef.simulation import snapshots
from fedcef.wire import Frame, FrameKind, decode, encode, head_of


class Protocol:
    """A run as both sides know it: its settings, its method on the CPU, and the facts of its rounds."""

    def __init__(self, settings: Settings, problem: Problem) -> None:
        if settings.budget:
            raise ConfigError("A budget is spent by the simulator only; leave budget out in a deployment.")
        if settings.compressor["name"] == "auto":
            raise ConfigError("compressor auto chooses in the simulator only; name what it chose there.")
        if settings.attack is not None:
            raise ConfigError("Attacks are simulated only; leave [attack] out in a deployment.")
        self.settings, self.num_clients = settings, settings.num_clients
        self.z0, self.state_dict, self.base = problem.z0.cpu(), problem.state_dict, problem.base_digest
        self.rounds = Rounds(settings, settings.num_clients)
        method = settings.build_algorithm(problem).for_share(self.rounds.share)
        statistics = problem.running_statistics.cpu()
        self.algorithm, self.longest = carrying(method, statistics), max(self.dim, len(statistics))
        check_rule(self.algorithm, self.rounds, settings.weighting == "samples")
        self.clients_have_state = bool(self.algorithm.client_init(self.z0))

    @property
    def dim(self) -> int:
        """p, the number of parameters."""
        return len(self.z0)

    @property
    def is_small(self) -> bool:
        """Whether one thread is best; decided as in the simulator, since it decides about bits."""
        return is_small(self.num_clients * self.dim)

    @cached_property
    def aggregator(self) -> Aggregator:
        """What makes the mean, or what stands for it; the server's."""
        return Aggregator.of(self.algorithm, self.rounds, self.z0)

    @property
    def adds_up(self) -> tuple[str, ...] | None:
        """The parts to take back from a client that lost its state; None if nobody can say, as of a masked message."""
        parts = self.algorithm.adds_up if self.clients_have_state else ()
        return None if parts and self.settings.secure else parts

    def start(self) -> State:
        """The replica before the first round, which everyone knows."""
        return self.algorithm.replica_init(self.z0)

    def advance(self, replica: State, entry: Frame) -> State:
        """The replica after the round whose down-message this is."""
        return self.rounds.at(entry.round).scheduled(self.algorithm).advance(replica, entry.message)

    def follow(self, seen: int, replica: State, frame: bytes) -> tuple[int, State]:
        """How many rounds a replica has seen, and itself, after one frame: the next entry of the log, or a snapshot.

        An entry that does not come next and does not stand alone, or anything earlier, changes nothing.
        """
        kind, round_ = head_of(frame)
        if kind == FrameKind.STATE and round_ >= seen:
            message = decode(frame, max_dim=self.longest).message
            return round_, {name: payload.dense() for name, payload in message.items()}
        if kind == FrameKind.DOWN and (round_ == seen or (self.algorithm.stands_alone and round_ > seen)):
            contexts = self.algorithm.contexts(replica)
            entry = decode(frame, max_dim=self.longest, contexts=contexts, max_relayed=self.num_clients)
            return round_ + 1, self.advance(replica, entry)
        return seen, replica

    def up_parts(self) -> dict[str, int]:
        """Names and lengths of an up-message's vectors, from a rehearsal without data."""
        rehearsal, key = replace(self.algorithm, local_steps=1), self.rounds.of_client(0, 0).compression
        up, _ = rehearsal.local(self.start(), rehearsal.client_init(self.z0), lambda x, k: torch.zeros_like(x), key)
        return {name: payload.dim for name, payload in up.items()}


def snapshot(replica: State, round_: int) -> bytes:
    """The replica after so many rounds as one frame, for clients that missed much."""
    return encode(snapshots.snapshot(replica), FrameKind.STATE, round_)
