"""What server and clients share of a run: the algorithm of every round, its keys, and how a replica follows the log."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, State
from fedcef.core import rng
from fedcef.core.errors import ConfigError
from fedcef.core.parts import make
from fedcef.core.rng import Key, round_key
from fedcef.core.schedules import SCHEDULES, in_round
from fedcef.problems.problem import Problem
from fedcef.runs.settings import Settings
from fedcef.simulation.ledger import whole
from fedcef.wire import Frame, FrameKind, decode, encode


class Method:
    def __init__(self, config: Settings, problem: Problem) -> None:
        if config.budget:
            raise ConfigError("A budget is spent by the simulator only; leave budget away in a deployment.")
        self.config, self.num_clients = config, config.num_clients
        self.z0, self.layout = problem.z0.cpu(), problem.layout
        self.algorithm = config.build_algorithm(problem)
        self.clients_have_state = bool(self.algorithm.client_init(self.z0))
        self._local = make("local_schedule", SCHEDULES, config.local_schedule).for_rounds(config.rounds)
        self._server = make("server_schedule", SCHEDULES, config.server_schedule).for_rounds(config.rounds)

    @property
    def dim(self) -> int:
        return len(self.z0)

    @property
    def adds_up(self) -> tuple[str, ...] | None:
        """The parts to take back from a client that lost its state; None if nobody can say."""
        return self.algorithm.adds_up if self.clients_have_state else ()

    def start(self) -> State:
        """The replica before the first round, which everyone knows."""
        return self.algorithm.replica_init(self.z0)

    def in_round(self, round_: int) -> Algorithm:
        """The algorithm with the step sizes of a round."""
        return in_round(self.algorithm, self._local, self._server, torch.tensor(round_))

    def key(self, round_: int, client: int) -> Key:
        """What one client draws in a round, as the simulator's row of that client."""
        key = round_key(self.config.seed, round_, torch.tensor(client))
        return key.fold(rng.COMPRESSION)

    def shared_key(self, round_: int, purpose: int) -> Tensor:
        """What the server draws in a round."""
        return rng.fold(round_key(self.config.seed, round_, torch.tensor(0)).shared, purpose)

    def follow(self, replica: State, frame: bytes) -> State:
        """The replica after one frame: the next entry of the log, or a snapshot."""
        entry = decode(frame, max_dim=self.dim)
        if entry.kind == FrameKind.STATE:
            return {name: payload.dense() for name, payload in entry.message.items()}
        return self.advance(replica, entry)

    def advance(self, replica: State, entry: Frame) -> State:
        return self.in_round(entry.round).advance(replica, entry.message)

    def up_parts(self) -> dict[str, int]:
        """Names and lengths of an up-message's vectors, from a rehearsal without data."""
        rehearsal = replace(self.algorithm, local_steps=1)
        up, _ = rehearsal.local(
            self.start(), rehearsal.client_init(self.z0), lambda x, k: torch.zeros_like(x), self.key(0, 0)
        )
        return {name: payload.dim for name, payload in up.items()}


def snapshot(replica: State, round_: int) -> bytes:
    """The replica after so many rounds as one frame."""
    return encode(whole(replica), FrameKind.STATE, round_)


def hash_of(replica: State) -> bytes:
    """Tells replicas apart that differ in a single bit."""
    state = hashlib.blake2b(digest_size=16)
    for name in sorted(replica):
        vector = replica[name].detach().cpu().contiguous()
        state.update(f"{name} {vector.dtype} {len(vector)} ".encode())
        state.update(vector.numpy().data)
    return state.digest()
