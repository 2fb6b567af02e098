"""A regulariser on some of the entries: which entries these may be."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcef import L1, OnParameters, Problem
from fedcef.core.errors import ConfigError

X = torch.linspace(-1, 1, 18)


def test_a_mask_stands_for_its_positions():
    positions = torch.tensor([0, 3, 17])
    mask = torch.zeros(18, dtype=torch.bool)
    mask[positions] = True
    by_mask, by_position = OnParameters(L1(0.3), mask), OnParameters(L1(0.3), positions.int())
    assert torch.equal(by_mask.chosen, positions)
    assert torch.equal(by_mask.prox(X, 1.0), by_position.prox(X, 1.0))
    assert by_mask.value(X) == by_position.value(X)


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        (torch.tensor([1.0, 2.0]), r"or of truth values, one for each entry; it got float32 of shape \(2,\)"),
        (torch.tensor([[1, 2]]), r"it got int64 of shape \(1, 2\)"),
        (torch.tensor([-1, 2]), "takes every position once, counted from 0; some are negative, or twice there"),
        (torch.tensor([2, 2]), "some are negative, or twice there"),
        (torch.tensor([3, 99]), "OnParameters has the position 99, and the vector ends with 17"),
    ],
)
def test_other_positions_are_refused(chosen, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Problem.build(
            nn.Linear(5, 3),
            cross_entropy,
            [(torch.zeros(4, 5), torch.tensor([0, 1, 2, 0]))],
            regularizer=OnParameters(L1(0.3), chosen),
        )
