"""What the spread over seeds can tell apart."""

from fedcef.report.data.records import Column


def within_noise(one: Column, other: Column) -> bool:
    """Whether the means of two methods differ by no more than the larger standard deviation over their seeds.

    Of a single run the spread is not known, so that only equal results are a tie.

    >>> import numpy as np
    >>> within_noise(np.array([0.90, 0.92]), np.array([0.91, 0.93])), within_noise(np.array([0.90]), np.array([0.91]))
    (True, False)
    """
    spread = max(float(values.std(ddof=1)) if values.size > 1 else 0.0 for values in (one, other))
    return abs(float(one.mean()) - float(other.mean())) <= spread + 1e-12
