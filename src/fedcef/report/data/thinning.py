"""Fewer points of long curves: what is left out cannot be seen, and what stands out is kept."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedcef.report.data.records import Column


def thin(columns: Sequence[Column], most: int) -> NDArray[np.int64]:
    """Which of the points of curves over the same rounds to keep, about `most` of them.

    The rounds are cut into stretches, half of them of equal length and half growing by a factor, for axes of both
    scales; of each stretch the least and greatest value of every column stay, and so do both ends.
    """
    size = columns[0].size
    if size <= most:
        return np.arange(size, dtype=np.int64)
    half = max(1, most // (4 * len(columns)))
    cuts = np.unique(np.concatenate([np.linspace(0, size, half + 1), np.geomspace(1, size, half + 1)]).astype(int))
    kept = {0, size - 1}
    for start, end in zip([0, *cuts[cuts > 0][:-1]], cuts[cuts > 0], strict=True):
        for column in columns:
            part = column[start:end]
            kept |= {int(start + part.argmin()), int(start + part.argmax())}
    return np.array(sorted(kept), dtype=np.int64)
