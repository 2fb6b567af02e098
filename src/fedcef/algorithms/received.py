"""What the server has of a round: the cohort's up-messages, decoded and averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.wire import Nonzeros, Payload, Relay, mean
from fedcef.wire.forms.smallest import smallest


@dataclass(frozen=True, eq=False)
class Received:
    """A round's up-messages as a server's step uses them."""

    mean: Mapping[str, Tensor]
    """(p,) each: the mean over the cohort of every part of the up-messages."""
    parts: Mapping[str, Sequence[Payload]]
    """Those parts as they came, in the order of the clients."""
    share: float
    """The fraction of all clients that took part, S/N."""
    key: Tensor
    """() int64, for what the server draws in this round; the participants have it too."""
    weighted: bool = False
    """Whether the mean counts some members more than others."""

    @classmethod
    def of(
        cls,
        parts: Mapping[str, Sequence[Payload]],
        key: Tensor,
        *,
        share: float = 1.0,
        weights: Tensor | None = None,
    ) -> Received:
        """From the parts of a cohort's messages; its members count alike or by their weights."""
        means = {name: mean_of(payloads, weights) for name, payloads in parts.items()}
        return cls(means, parts, share, key, weights is not None)

    def without_loss(self, name: str, scale: float) -> Payload:
        """scale · mean of a part, in the shortest form that gives everyone the same bits.

        That is its non-zero entries, all of its entries, or what the clients sent, from which everyone forms the mean.
        """
        entries = Nonzeros(scale * self.mean[name])
        return entries if self.weighted else smallest(entries, Relay.of(self.parts[name], scale))


def mean_of(payloads: Sequence[Payload], weights: Tensor | None = None) -> Tensor:
    """The (weighted) mean of decoded payloads, (p,), added up in the order of the clients."""
    if weights is None:
        return mean(payloads)
    weights = weights / weights.sum()
    return torch.stack([weight * payload.dense() for weight, payload in zip(weights, payloads, strict=True)]).sum(0)
