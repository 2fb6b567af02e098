"""What clients hold, by hand and counted in problems."""

from math import log

import numpy as np
import pytest
import torch
from torch import nn

from fedcef import Problem
from fedcef.clients import drawn, from_arrays, from_function
from fedcef.problems.counting import MOST_READ, count_holdings
from fedcef.problems.holdings import LEVELS, LISTED, Holdings

BY_HAND = Holdings(np.array([4, 4, 2]), ("a", "b"), np.array([[4, 0], [2, 2], [0, 2]]))
"""Of 10 samples 6 are a's and 4 b's."""


def test_measures_by_hand():
    np.testing.assert_allclose(BY_HAND.distances, [0.4, 0.1, 0.6])
    half = 0.5 * log(0.5 / 0.6) + 0.5 * log(0.5 / 0.4)
    np.testing.assert_allclose(BY_HAND.divergences, [log(1 / 0.6), half, log(1 / 0.4)])
    assert BY_HAND.held.tolist() == [1, 2, 1]
    assert BY_HAND.holders.tolist() == [2, 2]
    assert BY_HAND.totals.tolist() == [6, 4]
    assert BY_HAND.gini == pytest.approx((0 + 2 + 2) * 2 / (2 * 3 * 10))


@pytest.mark.parametrize(("sizes", "gini"), [([5, 5, 5], 0), ([0, 0, 0, 8], 3 / 4), ([1, 3], 1 / 4), ([0, 0], 0)])
def test_gini_of_known_sizes(sizes, gini):
    assert Holdings(np.array(sizes)).gini == pytest.approx(gini)


def test_quantiles_are_clients_own_values():
    found = Holdings(np.arange(101)[::-1].copy()).summary()
    assert dict(zip(LEVELS, found.quantiles["samples"], strict=True)) == {
        "min": 0, "5%": 5, "25%": 25, "median": 50, "75%": 75, "95%": 95, "max": 100,
    }  # fmt: skip
    assert set(Holdings(np.array([1, 4])).summary().quantiles["samples"]) == {1, 4}


def test_facts_list_few_clients_and_sum_up_many():
    assert BY_HAND.facts() == {"samples": [4, 4, 2], "classes": ["a", "b"], "counts": [[4, 0], [2, 2], [0, 2]]}
    assert Holdings(np.ones(LISTED, dtype=np.int64)).facts() == {"samples": [1] * LISTED}
    assert list(Holdings(np.ones(LISTED + 1, dtype=np.int64)).facts()) == ["summary"]


def problem(clients, outputs=3):
    return Problem.build(nn.Linear(1, outputs), nn.functional.cross_entropy, clients)


INPUTS, TARGETS = torch.zeros(6, 1), torch.tensor([0, 2, 2, 0, 0, 2])
COUNTS = [[1, 2], [2, 1]]


def test_counts_are_those_of_the_clients_wherever_their_samples_lie():
    tables = [(INPUTS[:3], TARGETS[:3]), (INPUTS[3:], TARGETS[3:])]
    sources = (
        tables,
        from_arrays(INPUTS, TARGETS, [[0, 1, 2], [3, 4, 5]]),
        from_function(lambda client: tables[client], 2),
    )
    for source in sources:
        found = count_holdings(problem(source))
        assert found.classes == (0, 2)
        assert found.counts.tolist() == COUNTS
        assert found.sizes.tolist() == [3, 3]
        assert not found.population


def test_of_a_drawn_population_some_are_looked_at():
    found = count_holdings(problem(drawn(INPUTS, TARGETS, 10**6, 7, alpha=0.5, seed=0)))
    assert found.num_clients == 10**6
    assert len(found.sizes) == MOST_READ
    assert set(found.sizes.tolist()) == {7}
    assert found.counts.sum(axis=1).tolist() == [7] * MOST_READ


def test_regression_tells_of_the_clients_means():
    tables = [(torch.zeros(2, 1), torch.tensor([[1.0], [2.0]])), (torch.zeros(1, 1), torch.tensor([[5.0]]))]
    found = count_holdings(Problem.build(nn.Linear(1, 1), nn.functional.mse_loss, tables))
    assert found.counts is None
    assert found.mean_targets.tolist() == [1.5, 5.0]
    assert list(found.measures()) == ["samples", "mean target"]


def test_too_many_classes_or_targets_are_left_alone():
    assert count_holdings(problem([(INPUTS, TARGETS)]), most_classes=1).counts is None
    several = [(torch.zeros(2, 1, 4), torch.zeros(2, 4, dtype=torch.int64))]
    model = nn.Conv1d(1, 3, 1)
    assert list(count_holdings(Problem.build(model, nn.functional.cross_entropy, several)).measures()) == ["samples"]
