"""The running mean of the models: training does not see it, and the trained model is as sparse as the last one."""

import pytest
import torch

from fedcef import L1, FedCEF, TopK, run
from fedcef.core.errors import ConfigError
from fedcef.problems.lasso import lasso
from fedcef.simulation.averaging import running_mean, started, trained_model
from fedcef.simulation.simulation import Simulation

PROBLEM = lasso(L1(0.05), num_clients=6, samples=20, dim=30, support=4)
OPTIONS = {"seed": 3, "batch_size": 8, "clients_per_round": 2}


def method():
    return FedCEF(local_lr=0.02, local_steps=4, compressor=TopK(ratio=0.2), regularizer=PROBLEM.regularizer)


def test_the_mean_by_hand():
    """a_t is 1/10, 2/11, 3/12, … until it is `averaging`."""
    average, expected = started(torch.zeros(2)), 0.0
    for t, z in enumerate([1.0, 2.0, 4.0, 8.0]):
        worth = min(0.2, (1 + t) / (10 + t))
        expected = worth * expected + (1 - worth) * z
        average = running_mean(average, torch.full((2,), z), torch.tensor(t), 0.2)
        torch.testing.assert_close(average["z"], torch.full((2,), expected))


def test_what_the_last_model_has_removed_is_gone():
    average = {"z": torch.tensor([0.3, -0.2, 0.1])}
    assert trained_model(average, torch.tensor([1.0, 0.0, -1.0])).tolist() == pytest.approx([0.3, 0.0, 0.1])
    z = torch.tensor([1.0, 0.0])
    assert trained_model({}, z) is z


def test_training_and_bytes_are_what_they_are_without():
    plain, averaged = Simulation(PROBLEM, method(), **OPTIONS), Simulation(PROBLEM, method(), **OPTIONS, averaging=0.9)
    models = []
    for _ in range(12):
        plain.step(), averaged.step()
        models.append(plain.model())
    assert all(torch.equal(plain.replica[name], averaged.replica[name]) for name in plain.replica)
    assert plain.ledger.totals() == averaged.ledger.totals()
    mean = started(PROBLEM.z0)
    for t, z in enumerate(models):
        mean = running_mean(mean, z, torch.tensor(t), 0.9)
    assert torch.equal(averaged.model(), trained_model(mean, models[-1]))
    assert not torch.equal(averaged.model(), models[-1])
    assert torch.equal(averaged.model() == 0, models[-1] == 0)


def test_it_is_part_of_a_snapshot():
    through = Simulation(PROBLEM, method(), **OPTIONS, averaging=0.8)
    for _ in range(4):
        through.step()
    resumed = Simulation(PROBLEM, method(), **OPTIONS, averaging=0.8)
    resumed.restore(4, {part: {n: t.clone() for n, t in state.items()} for part, state in through.parts().items()})
    for _ in range(3):
        through.step(), resumed.step()
    assert torch.equal(through.model(), resumed.model())
    assert "average" not in Simulation(PROBLEM, method(), **OPTIONS).parts()


def test_a_run_from_python_records_the_mean():
    common = {"rounds": 6, **OPTIONS}
    plain, averaged = (run(PROBLEM, method(), **common, averaging=a) for a in (0.0, 0.9))
    assert plain.records[-1]["wire_up_bytes"] == averaged.records[-1]["wire_up_bytes"]
    assert plain.records[-1]["objective"] != averaged.records[-1]["objective"]


@pytest.mark.parametrize("averaging", [1.0, -0.1, "much"])
def test_what_is_no_weight_is_refused(averaging):
    with pytest.raises(ConfigError, match="averaging is"):
        Simulation(PROBLEM, method(), averaging=averaging)
