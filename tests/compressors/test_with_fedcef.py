"""Error feedback makes up for every contraction: FedCEF ends at the solution whatever compressor it has."""

from functools import cache

import pytest
import torch

from fedcef.algorithms import FedCEF
from fedcef.compressors import COMPRESSORS, Compressor, Identity
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.simulation.simulation import Simulation

PROBLEM = lasso(L1(0.05), num_clients=4, samples=60, dim=24, support=5)
SHORT = {
    "randk": {"ratio": 0.3},
    "block_topk": {"ratio": 0.4, "length": 4},
    "powersgd": {"rank": 1, "shapes": ((4, 6),)},
}
BLOCKS = ("scaled_sign", "one_bit", "three_lc", "terngrad", "qsgd")


def end(compressor: Compressor, rounds: int) -> torch.Tensor:
    algorithm = FedCEF(local_lr=0.06, local_steps=3, regularizer=PROBLEM.regularizer, compressor=compressor)
    simulation = Simulation(PROBLEM, algorithm, batch_size=0)
    for _ in range(rounds):
        simulation.step()
    return simulation.model()


@cache
def solution() -> torch.Tensor:
    return end(Identity(), 150)


@pytest.mark.parametrize("name", [name for name in COMPRESSORS if name != "auto"])  # which a run replaces by another
def test_fedcef_ends_at_the_solution(name):
    options = SHORT.get(name, {"block": 8} if name in BLOCKS else {})
    found = end(COMPRESSORS[name](**options), 120)
    assert float((found - solution()).norm() / solution().norm()) < 1e-3
