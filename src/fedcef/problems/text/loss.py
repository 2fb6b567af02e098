"""The loss of language models."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy


def next_token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy in nats, the mean over all tokens of all windows: (B, V, T) and (B, T) -> ().

    It is torch's cross_entropy(outputs, targets).  Models of tokens compute (B, T, V) and hand it out with the classes
    on axis 1; turned back, the scores of a position lie in one piece, and nothing is copied.
    """
    return cross_entropy(outputs.transpose(1, 2).flatten(0, 1), targets.flatten())
