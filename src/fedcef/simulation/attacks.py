"""Clients that lie, for studies of robust rules (docs/robustness.md): what arrives in the place of their messages.

They do their work as everyone does and keep their states; only what they send, or train on, is not what it should be.

    sign_flip        -s · their own vector
    scaling          s · their own vector
    label_flip       the class y becomes C - 1 - y in their data
    a_little         mean - s · standard deviation of the honest vectors, entry by entry: "A Little Is Enough" (Baruch,
                     Baruch, Goldberg 2019, arXiv 1902.06156)
    inner_product    -s · mean of the honest vectors (Xie, Koyejo, Gupta 2019, arXiv 1903.03936)

In the last two all liars send the same vector and know what the honest clients of the round send: the strongest form.
Where messages are differences to what was sent before, the vector is the sum of all that the client has sent, as its
server knows it.  Bytes are counted as those of the honest messages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcef.algorithms.aggregating import PREFIX
from fedcef.algorithms.algorithm import Message, State
from fedcef.algorithms.statistics import STATISTICS
from fedcef.core.attack import Attack
from fedcef.core.errors import ConfigError
from fedcef.core.round import Round, Rounds
from fedcef.core.training import Training
from fedcef.problems.client_data import PooledData
from fedcef.problems.problem import Problem
from fedcef.wire import Dense


@dataclass(frozen=True, eq=False)
class Attacker:
    """The lying clients of a run."""

    attack: Attack
    lying: Tensor
    """Who they are, (N,) bool."""

    @property
    def looks(self) -> bool:
        """Whether they must know what everyone has sent so far."""
        return self.attack.name == "a_little"

    def sent(self, up: Message, round_: Round, server: State) -> Message:
        """What arrives of a round's messages; running statistics are left alone."""
        if self.attack.name == "label_flip":
            return up
        lying = self.lying[round_.clients]
        return {
            name: payload
            if name == STATISTICS
            else Dense(self._vectors(payload.dense(), lying, before(server, name, round_.clients)))
            for name, payload in up.items()
        }

    def _vectors(self, own: Tensor, lying: Tensor, sent: Tensor | float) -> Tensor:
        """The vectors of a cohort, (S, p), with the liars' own; `sent` is what they add up to."""
        s = self.attack.force
        honest = (~lying).to(own.dtype).unsqueeze(-1)
        count = honest.sum().clamp(min=1)
        if self.attack.name == "sign_flip":
            false = -s * own
        elif self.attack.name == "scaling":
            false = s * own
        elif self.attack.name == "inner_product":
            false = (-s * (honest * own).sum(0) / count).expand_as(own)
        else:
            whole = sent + own
            mean = (honest * whole).sum(0) / count
            deviation = ((honest * (whole - mean).square()).sum(0) / count).sqrt()
            false = mean - s * deviation - sent
        return torch.where(lying.unsqueeze(-1), false, own)


def before(server: State, part: str, clients: Tensor) -> Tensor | float:
    """What these clients have sent of a part so far; nothing where it does not add up."""
    sent = server.get(f"{PREFIX}sent.{part}")
    return 0.0 if sent is None else sent[clients]


def attacker_for(rounds: Rounds) -> Attacker | None:
    """The attack that the options ask for."""
    attack, training = rounds.training.attack, rounds.training
    if attack is None:
        return None
    if training.network is not None and training.network.mode == "async":
        raise ConfigError("Attacks are on rounds; take network.mode = 'rounds', or leave [attack] out.")
    return Attacker(attack, attack.members(rounds.num_clients, training.seed).to(rounds.device))


def poisoned(problem: Problem, training: Training) -> Problem:
    """The problem as the clients train on it: with the liars' wrong labels, if the attack is in the data."""
    attack, data = training.attack, problem.data
    if attack is None or attack.name != "label_flip":
        return problem
    if not problem.classifies or not isinstance(data, PooledData):
        raise ConfigError("label_flip needs classes, of samples that lie in memory; take another attack.name.")
    targets = data.table.targets
    lying = attack.members(problem.num_clients, training.seed).to(targets.device)
    wrong = torch.repeat_interleave(lying, data.sizes).view(-1, *[1] * (targets.ndim - 1))
    flipped = torch.where(wrong, targets.max() - targets, targets)
    return replace(problem, data=replace(data, table=replace(data.table, targets=flipped)))
