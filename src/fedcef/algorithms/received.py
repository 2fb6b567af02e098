"""What the server has of a round: the cohort's up-messages, decoded and averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedcef.wire import Nonzeros, Payload, Relay, as_stack, mean, smallest


@dataclass(frozen=True, eq=False)
class Received:
    """A round's up-messages as a server's step uses them."""

    mean: Mapping[str, Tensor]
    """(p,) each: the mean over the cohort of every part of the up-messages."""
    stacks: Mapping[str, Payload]
    """Those parts as they came: a stack (S,) each, in the order of the clients."""
    share: float
    """The fraction of all clients that took part, S/N."""
    key: Tensor
    """() int64, for what the server draws in this round; the participants have it too."""
    weighted: bool = False
    """Whether the mean is another than the plain one: by weights, or by a rule that nobody else can apply."""

    @classmethod
    def of(
        cls,
        parts: Mapping[str, Payload | Sequence[Payload]],
        key: Tensor,
        *,
        share: float = 1.0,
        weights: Tensor | None = None,
    ) -> Received:
        """From the parts of a cohort's messages; its members count alike or by their weights.

        Args:
            parts: for each a stack, as in the simulator, or the clients' single payloads, which may differ in form.
            key: what the server draws from.
            share: the fraction of all clients that took part.
            weights: how much each member counts, (S,).
        """
        means = {name: mean_of(payloads, weights) for name, payloads in parts.items()}
        stacks = {name: as_stack(payloads) for name, payloads in parts.items()}
        return cls(means, stacks, share, key, weights is not None)

    @cached_property
    def parts(self) -> Mapping[str, Sequence[Payload]]:
        """The stacks taken apart: the clients' single payloads."""
        return {name: stack.rows() for name, stack in self.stacks.items()}

    def without_loss(self, name: str, scale: float) -> Payload:
        """scale · mean of a part, in the shortest form that gives everyone the same bits.

        That is its non-zero entries, all of its entries, or what the clients sent, from which everyone forms the mean.
        """
        entries = Nonzeros(scale * self.mean[name])
        stack = self.stacks[name]
        return entries if self.weighted or not stack.relayable else smallest(entries, Relay(stack, scale))


def mean_of(payloads: Payload | Sequence[Payload], weights: Tensor | None = None) -> Tensor:
    """The (weighted) mean of decoded payloads, (p,), added up in the order of the clients."""
    if weights is None:
        return mean(payloads)
    weights = weights / weights.sum()
    if isinstance(payloads, Payload):
        vectors = payloads.dense()
        return (weights.to(vectors.dtype).unsqueeze(-1) * vectors).sum(0)
    return torch.stack([weight * payload.dense() for weight, payload in zip(weights, payloads, strict=True)]).sum(0)
