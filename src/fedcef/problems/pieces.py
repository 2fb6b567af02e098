"""How much a part of a batch counts in its mean loss, where that is computed part by part.

A cross-entropy divides by the number of the targets that it does not ignore, or by the sum of their classes' weights.
The mean of parts is that of the whole only if every part counts by what it was divided by: with padded sequences some
parts have few targets.  Other losses are taken for means over samples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcef.problems.accuracy import IGNORED
from fedcef.problems.outputs import unwrapped
from fedcef.problems.text.loss import next_token_loss

_FUNCTIONS = (functional.cross_entropy, functional.nll_loss, next_token_loss)
_MODULES = (nn.CrossEntropyLoss, nn.NLLLoss)


def divisor(loss: Any, targets: Tensor) -> Tensor | None:
    """What the mean over these targets is divided by, (), in float64; None where the loss does not tell, or has none.

    Args:
        loss: The problem's loss: torch's cross-entropies with class numbers, as functions (also in a `partial`) or
            modules, tell it.
        targets: Of the samples of a batch or of a part of it.
    """
    loss, options = unwrapped(loss)
    if type(loss) in _MODULES:
        options = {"weight": loss.weight, "ignore_index": loss.ignore_index}
    elif loss not in _FUNCTIONS:
        return None
    if targets.is_floating_point():
        return None
    counts: Tensor = targets != options.get("ignore_index", IGNORED)
    weight: Tensor | None = options.get("weight")
    if weight is None:
        return counts.sum().double()
    return (weight.to(targets.device)[torch.where(counts, targets, 0)].double() * counts).sum()


def share(loss: Any, part: Tensor, whole: Tensor, like: Tensor, weight: float = 1.0) -> float | Tensor:
    """The weight of a part's mean loss, times `weight`: that of its samples, or of what was divided by.

    It is a number on the device, in the type of `like`, where the loss tells; nothing waits for it.
    """
    here = divisor(loss, part)
    if here is None:
        return weight * len(part) / len(whole)
    all_of_them = divisor(loss, whole)
    assert all_of_them is not None, "a loss tells for all targets of a client or for none"
    each = max(1, whole[:1].numel())  # targets of a sample; counted in samples, what all count in gives the same bits
    return (weight * (here / each) / (all_of_them / each).clamp(min=1e-300)).to(like.dtype)


def scaled(loss: Any, value: Tensor, part: Tensor, whole: Tensor, weight: float = 1.0) -> Tensor:
    """A part's mean loss times its share; 0 where nothing in it counts but elsewhere something does.

    Where nothing counts at all it is no number, as the loss of the whole is; its gradient is 0, as that one's is.
    """
    if len(part) == len(whole):
        return (weight * len(part) / len(whole)) * value  # as it is for losses that do not tell, bit for bit
    factor, all_of_them = share(loss, part, whole, value, weight), divisor(loss, whole)
    if not isinstance(factor, Tensor) or all_of_them is None:
        return factor * value
    counted = torch.where(factor > 0, value, torch.zeros_like(value)) * factor
    return counted + torch.where(all_of_them > 0, 0, value.detach())
