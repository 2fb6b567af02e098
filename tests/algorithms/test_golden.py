"""Rounds of every method by hand: plain NumPy beside the code.  The methods' families are in golden/."""

import numpy as np
import pytest
import torch

from fedcef.algorithms import ALGORITHMS, FedCEF

from .golden import (
    composite_methods,
    compressed_methods,
    language_methods,
    paper,
    partial_methods,
    scaffnew_family,
    server_methods,
    smooth_methods,
)
from .golden.by_hand import CLIENTS
from .setting import Quadratics, simulate

CASES = {**paper.CASES, **composite_methods.CASES, **compressed_methods.CASES, **smooth_methods.CASES}
CASES |= server_methods.CASES | scaffnew_family.CASES | partial_methods.CASES | language_methods.CASES


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("case", CASES)
def test_rounds_are_those_done_by_hand(case, rounds):
    algorithm, by_hand = CASES[case]
    points = simulate(algorithm, CLIENTS, rounds).points
    np.testing.assert_allclose(points[-1].numpy(), by_hand(rounds), rtol=0, atol=1e-14)


def test_one_round_of_fedcef_in_numbers():
    """K = 1, one parameter, no regulariser: v = η·g, Δ = v, c = mean Δ, z = z0 - β c."""
    clients = Quadratics(torch.tensor([[[2.0]], [[4.0]]]), torch.tensor([[1.0], [0.0]]))
    algorithm = FedCEF(local_lr=0.5, server_lr=1.0, local_steps=1, mixing=0.5)
    # z0 = -1: gradients -3 and -4; c = -(1.5 + 2)/2 = -1.75; z = -1 + 0.5 * 1.75
    assert simulate(algorithm, clients, 1).points[0].item() == -0.125


def test_every_registered_method_has_a_golden_test():
    assert {type(algorithm) for algorithm, _ in CASES.values()} == set(ALGORITHMS.values())
