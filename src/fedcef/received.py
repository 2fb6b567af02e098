"""What the server has of a round: the cohort's up-messages, decoded and averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.wire import Payload


@dataclass(frozen=True, eq=False)
class Received:
    mean: Mapping[str, Tensor]  # (p,) each: the mean over the cohort of every part of the up-messages
    parts: Mapping[str, Sequence[Payload]]  # those parts as they came, in the order of the clients
    share: float  # the fraction of all clients that took part
    key: Tensor  # () int64, for what the server draws in this round; the participants have it too

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
        return cls({name: mean_of(payloads, weights) for name, payloads in parts.items()}, parts, share, key)


def mean_of(payloads: Sequence[Payload], weights: Tensor | None = None) -> Tensor:
    """The (weighted) mean of decoded payloads, (p,), added up in the order of the clients."""
    if weights is None:
        total = torch.zeros_like(payloads[0].dense())
        for payload in payloads:
            payload.add_to(total)
        return total / len(payloads)
    weights = weights / weights.sum()
    return torch.stack([weight * payload.dense() for weight, payload in zip(weights, payloads, strict=True)]).sum(0)
