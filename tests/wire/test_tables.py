"""The named tables of levels."""

from __future__ import annotations

from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
import torch

from fedcef.wire import TABLES

NORMAL = NormalDist()


def lloyd_max(bits: int) -> list[float]:
    """The levels with the least mean squared error for a standard normal number, by Lloyd's iteration."""
    count = 2**bits
    levels = [NORMAL.inv_cdf((i + 0.5) / count) for i in range(count)]
    while True:
        edges = [(a + b) / 2 for a, b in pairwise(levels)]
        density = [0.0, *(NORMAL.pdf(edge) for edge in edges), 0.0]
        below = [0.0, *(NORMAL.cdf(edge) for edge in edges), 1.0]
        means = [(density[i] - density[i + 1]) / (below[i + 1] - below[i]) for i in range(count)]
        if max(abs(a - b) for a, b in zip(means, levels, strict=True)) < 1e-12:
            return means
        levels = means


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_normal_levels(bits: int) -> None:
    expected = np.array(lloyd_max(bits)).astype(np.float32)
    got = np.array(TABLES[f"normal{bits}"].levels)
    np.testing.assert_allclose(got, expected, rtol=2e-7)  # an iteration in float64 is this exact


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_symmetric_ascending_and_exact_in_float32(name: str) -> None:
    table = TABLES[name]
    levels = np.array(table.levels)
    assert (np.diff(levels) > 0).all()
    assert (levels == -levels[::-1]).all()
    assert (levels == levels.astype(np.float32)).all()
    assert len(levels) <= (2**table.width if table.width else 3)
    assert torch.equal(table.tensor(torch.device("cpu")), torch.tensor(table.levels))


def test_where_zero_is() -> None:
    with_zero = {name for name, table in TABLES.items() if 0.0 in table.levels}
    assert with_zero == {"ternary", "uniform2", "uniform4", "uniform8"}
    assert [len(table.levels) for table in TABLES.values()] == [2, 3, 3, 15, 255, 4, 8, 16, 2, 4, 8, 16]
    assert TABLES["log3bit"].levels == (-1.0, -0.5, -0.25, -0.125, 0.125, 0.25, 0.5, 1.0)
