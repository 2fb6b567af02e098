"""A rule in the place of the mean (core/aggregation.py), for methods as they are.

Both engines have the server's `Received` made here.  What a rule is applied to depends on the part of the messages:

* A vector that counts for this round, as a change of the model: the rule is applied to the cohort's vectors.
* A difference to what a client has sent before (`Algorithm.adds_up`), as in FedCEF and EF21.  In one round most entries
  of a compressed difference are zero, and so would their median be.  So the server adds up what each client has sent,
  which is the client's c_i, and applies the rule to these sums, of all N clients.  What the method gets for a mean is
  what makes its c the rule's R(c_1, …, c_N): the result minus the one before, divided by the share of the cohort.  EF21
  with such a server is Byz-EF21 (Rammal, Gruntkowska, Fedin, Gorbunov, Richtárik 2024, arXiv 2310.09804).

What is remembered for this is part of the server's state, under names that begin with `rule.`: it is in every snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from fedcef.algorithms.algorithm import Algorithm, State, Vector
from fedcef.algorithms.received import Received, mean_of
from fedcef.compressors import Auto, Identity
from fedcef.core.aggregation import AGGREGATIONS, Aggregation, Mean
from fedcef.core.errors import ConfigError
from fedcef.core.parts import described
from fedcef.core.round import Round, Rounds, rehearsal_key
from fedcef.wire import Payload, as_stack

PREFIX = "rule."


@dataclass(frozen=True, eq=False)
class Aggregator:
    """Makes what the server has of a round, by the run's rule."""

    rule: Aggregation = Mean()
    num_clients: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)
    """Names and lengths of an up-message's vectors, unless all that is made are plain means."""
    sums: tuple[str, ...] = ()
    """Those of them that are differences, of which sums are kept."""

    @classmethod
    def of(cls, algorithm: Algorithm, rounds: Rounds, z0: Tensor, *, remembers: bool = False) -> Self:
        """For a run that `check_rule` has let through; `remembers` keeps the clients' sums whatever the rule."""
        rule, count = rounds.training.aggregation, rounds.num_clients
        if rule.is_mean(count) and not remembers:
            return cls(rule, count)
        return cls(rule, count, _parts(algorithm, z0), algorithm.adds_up or ())

    @property
    def is_mean(self) -> bool:
        """Whether it makes plain means, and remembers nothing."""
        return not self.parts

    def start(self, z0: Tensor) -> State:
        """What the server remembers before the first round."""
        state: State = {}
        for name, dim in self.parts.items():
            like, summed = z0.new_zeros(dim), name in self.sums
            state |= {f"{PREFIX}sent.{name}": z0.new_zeros(self.num_clients, dim)} if summed else {}
            if not self.rule.is_mean(self.num_clients):
                state |= {f"{PREFIX}{what}.{name}": memory for what, memory in self.rule.start(like).items()}
                state |= {f"{PREFIX}combined.{name}": like} if summed else {}
        return state

    def received(
        self,
        parts: Mapping[str, Payload | Sequence[Payload]],
        round_: Round,
        server: State,
        weights: Tensor | None = None,
    ) -> tuple[Received, State]:
        """The messages of a round's clients, with what stands for their mean; and what is remembered of them."""
        if self.is_mean:
            return Received.of(parts, round_.server, share=round_.share, weights=weights), {}
        kept = {name: tensor for name, tensor in server.items() if name.startswith(PREFIX)}
        stacks, means, plain = {name: as_stack(payloads) for name, payloads in parts.items()}, {}, True
        for name, stack in stacks.items():
            vectors, sent = stack.dense().nan_to_num(), kept.get(f"{PREFIX}sent.{name}")
            if sent is not None:
                sums = (sent[round_.clients] + vectors).nan_to_num()  # an overflow is a large number, and not the end
                kept[f"{PREFIX}sent.{name}"] = vectors = sent.index_copy(0, round_.clients, sums)
            if self.rule.is_mean(len(vectors)):
                means[name] = mean_of(stack, weights)
                continue
            plain, last = False, f"{PREFIX}combined.{name}"
            memory = {what: kept[f"{PREFIX}{what}.{name}"] for what in self.rule.start(vectors[0])}
            means[name], memory = self.rule.combine(vectors, memory)
            kept |= {f"{PREFIX}{what}.{name}": tensor for what, tensor in memory.items()}
            if sent is not None:
                kept[last], means[name] = means[name], (means[name] - kept[last]) / round_.share
        return Received(means, stacks, round_.share, round_.server, weights is not None or not plain), kept


def own_state(server: State) -> State:
    """The server's state without what is remembered for a rule: the method's own."""
    return {name: tensor for name, tensor in server.items() if not name.startswith(PREFIX)}


def check_rule(algorithm: Algorithm, rounds: Rounds, weighted: bool) -> None:
    """Refuse a rule where it would not be right; the method is the one for the planned share of clients."""
    rule, network = rounds.training.aggregation, rounds.training.network
    if rule.is_mean(rounds.num_clients):
        return
    name, method = described(rule, AGGREGATIONS)["name"], type(algorithm).__name__
    if not algorithm.takes_rules:
        raise ConfigError(
            f"With these options the server of {method} needs a mean, and not aggregation {name!r}; take a method "
            "whose server uses the mean as an estimate (fedavg, fedprox, fedavgm, fedadam, fedyogi, fedadagrad, "
            "diloco, fedmid, data_parallel, fedcanon, scaffold, ef21 and its kin, fedcef, and "
            "algorithm.participation = 'averaged' for fedcef with some of the clients), or aggregation = 'mean'."
        )
    if isinstance(algorithm.compressor, Auto):
        raise ConfigError(f"compressor auto plans for a mean and not for aggregation {name!r}; name a compressor.")
    if algorithm.compresses and not algorithm.adds_up and not isinstance(algorithm.compressor, Identity):
        raise ConfigError(
            f"Clients of {method} send compressed changes, each with entries of its own, so that aggregation {name!r} "
            "of them is no estimate; take fedcef or ef21, whose server knows each client's vector, "
            "compressor.name = 'identity', or aggregation = 'mean'."
        )
    if weighted:
        raise ConfigError(
            f"aggregation {name!r} counts all clients alike, since how many samples it has is what a client says; take "
            "weighting = 'uniform'."
        )
    if network is not None and network.mode == "async":
        raise ConfigError(
            f"The asynchronous mode weighs changes by their age and takes their mean, not aggregation {name!r}; take "
            "network.mode = 'rounds'."
        )
    if algorithm.adds_up and rounds.is_population:
        raise ConfigError(
            f"For aggregation {name!r} the server of {method} looks at a vector of each of its {rounds.num_clients} "
            "clients in every round, which is for up to 16,384; take fedavg, or aggregation = 'mean'."
        )


def _parts(algorithm: Algorithm, z0: Tensor) -> dict[str, int]:
    """Names and lengths of an up-message's vectors, from a rehearsal without data."""
    rehearsal = replace(algorithm, local_steps=1)
    key = rehearsal_key(torch.zeros((), dtype=torch.int64, device=z0.device))
    with torch.no_grad():
        up, _ = rehearsal.local(rehearsal.replica_init(z0), rehearsal.client_init(z0), _nothing, key)
    return {name: payload.dim for name, payload in up.items()}


def _nothing(x: Vector, k: int) -> Vector:
    """An oracle without data."""
    return torch.zeros_like(x)
