"""Where clients' states are kept: the table in memory, and a store from docs/extend.md."""

import re
from pathlib import Path

import pytest
import torch

from fedcef.algorithms import FedCEF
from fedcef.compressors import TopK
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.simulation.client_states import Table
from fedcef.simulation.simulation import Simulation

PAGE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text("utf-8")
SOURCE = re.search(r"`my_states\.py`.*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL).group(1)
PROBLEM = lasso(L1(0.05), num_clients=8, samples=30, dim=20, support=5, dtype=torch.float64)


def touched():
    names = {"__name__": "my_states"}
    exec(SOURCE, names)
    return names["Touched"]


def simulation(**options):
    algorithm = FedCEF(local_lr=0.005, local_steps=3, regularizer=PROBLEM.regularizer, compressor=TopK(ratio=0.2))
    return Simulation(PROBLEM, algorithm, batch_size=5, **{"clients_per_round": 3, **options})


def test_the_example_has_at_most_forty_lines():
    assert len(SOURCE.splitlines()) <= 40


@pytest.mark.parametrize("clients_per_round", [3, 0])
def test_another_store_gives_the_same_run(clients_per_round):
    table, other = (simulation(client_states=s, clients_per_round=clients_per_round) for s in (Table, touched()))
    for _ in range(6):
        table.step()
        other.step()
    assert torch.equal(table.model(), other.model())
    assert table.ledger.totals() == other.ledger.totals()
    everyone = torch.arange(8)
    for name, rows in table.state.clients.take(everyone).items():
        assert torch.equal(rows, other.state.clients.take(everyone)[name])
        assert torch.allclose(table.state.clients.mean()[name], other.state.clients.mean()[name], rtol=0, atol=1e-15)
    assert float(other.diagnostics()["control_gap"]) <= 1e-12


def test_a_state_exists_once_it_is_touched():
    run = simulation(client_states=touched())
    run.step()
    assert sorted(run.clients["client"].tolist()) == run.engine.rounds.cohort(0).tolist()
    assert run.clients["c_i"].shape == (3, 20)


def test_a_run_goes_on_from_any_store():
    kind = touched()
    whole, first, second = (simulation(client_states=kind) for _ in range(3))
    for _ in range(6):
        whole.step()
    for _ in range(3):
        first.step()
    second.restore(first.round, first.parts())
    for _ in range(3):
        second.step()
    assert torch.equal(whole.model(), second.model())


def test_states_are_values():
    run = simulation()
    before = run.state
    copies = {name: tensor.clone() for name, tensor in before.tensors().items()}
    run.step()
    assert run.state is not before
    assert all(torch.equal(tensor, copies[name]) for name, tensor in before.tensors().items())


def test_states_of_another_problem_are_refused():
    other = lasso(L1(0.05), num_clients=5, samples=30, dim=20, support=5, dtype=torch.float64)
    parts = Simulation(other, FedCEF(regularizer=other.regularizer), batch_size=5).parts()
    with pytest.raises(ValueError, match="differs"):
        simulation().restore(0, parts)
