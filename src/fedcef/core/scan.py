"""Running counts along the rows of a mask, fast on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor


def running_count(mask: Tensor) -> Tensor:
    """How many entries of its row are set up to each entry, itself included: bool (..., p) -> int64 (..., p).

    The rows are counted as one: a GPU scans one long vector with all of its processors, but a row of a table with one
    of them.
    """
    counts = mask.flatten().cumsum(0).view(mask.shape)
    if mask.ndim == 1:
        return counts
    ends = counts[..., -1].flatten()
    before = torch.nn.functional.pad(ends, (1, 0))[:-1].view(*mask.shape[:-1], 1)
    return counts - before
