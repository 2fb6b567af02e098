"""Recorded rounds whose clients' states lie elsewhere: rows go to their seats and back."""

import pytest
import torch
from test_budget import HostMemory, InPlace

from fedcef.algorithms import FedAvg, FedCEF
from fedcef.compressors import TopK
from fedcef.core.round import Rounds
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.simulation.seats import Seated
from fedcef.simulation.simulation import Simulation

PROBLEM = lasso(L1(0.05), num_clients=12, samples=30, dim=20, support=5)
OPTIONS = {"local_lr": 0.005, "local_steps": 3, "regularizer": PROBLEM.regularizer}
FEDCEF = FedCEF(**OPTIONS, compressor=TopK(ratio=0.2), mixing=0.5)


def simulation(algorithm, store, **options):
    return Simulation(PROBLEM, algorithm, batch_size=5, clients_per_round=4, store={"name": store}, **options)


@pytest.mark.parametrize("store", ["memory", "host", "disk"])
@pytest.mark.parametrize("algorithm", [FEDCEF, FedAvg(**OPTIONS)], ids=["fedcef", "fedavg"])
def test_rounds_on_seats_are_the_same_rounds(algorithm, store):
    plain, seated = simulation(algorithm, "table"), simulation(algorithm, store)
    recorded = InPlace(seated.engine.play, HostMemory())
    seated._play = Seated(recorded, Rounds(seated.training, 12))
    for _ in range(8):
        plain.step()
        seated.step()
    assert recorded.is_recorded
    assert torch.equal(plain.model(), seated.model())
    assert plain.ledger.totals() == seated.ledger.totals()
    everyone = torch.arange(12)
    for name, rows in plain.state.clients.take(everyone).items():
        assert torch.equal(rows, seated.state.clients.take(everyone)[name])
