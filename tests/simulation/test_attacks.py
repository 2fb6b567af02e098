"""Clients that lie: what arrives of them, by hand; who they are; and that only what they send is changed."""

import pytest
import torch

from fedcef.algorithms import FedAvg, FedCEF
from fedcef.compressors import TopK
from fedcef.core.attack import Attack
from fedcef.core.errors import ConfigError
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.runs.settings import Settings
from fedcef.simulation.attacks import Attacker, poisoned
from fedcef.simulation.simulation import Simulation
from fedcef.wire import Dense

VECTORS = torch.tensor([[1.0, 2.0], [3.0, 6.0], [10.0, 10.0], [2.0, 4.0]], dtype=torch.float64)
LIARS = [2]
PROBLEM = lasso(L1(0.05), num_clients=5, samples=30, dim=20, support=5, dtype=torch.float64)
SMALL = {"local_lr": 0.005, "local_steps": 3, "regularizer": PROBLEM.regularizer}


def arrived(name, server=None, **options):
    attack = Attack(name=name, clients=LIARS, **options)
    round_ = Rounds(Training(), 4).at(0)
    up = {"change": Dense(VECTORS)}
    return Attacker(attack, attack.members(4, 0)).sent(up, round_, server or {})["change"].dense()


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("sign_flip", [-10.0, -10.0]),
        ("scaling", [1000.0, 1000.0]),
        ("label_flip", [10.0, 10.0]),  # it is in the data
        ("inner_product", [-20.0, -40.0]),  # the mean of the honest is (2, 4)
        ("a_little", [2 - 1.5 * (2 / 3) ** 0.5, 4 - 1.5 * (8 / 3) ** 0.5]),
    ],
)
def test_lies_by_hand(name, lie):
    rows = arrived(name)
    assert torch.equal(rows[[0, 1, 3]], VECTORS[[0, 1, 3]])
    assert rows[2].tolist() == pytest.approx(lie, abs=1e-14)


def test_strength_is_a_factor():
    assert arrived("sign_flip", strength=3.0)[2].tolist() == [-30.0, -30.0]
    assert arrived("scaling", strength=2.0)[2].tolist() == [20.0, 20.0]


def test_where_messages_add_up_the_sums_are_the_lies():
    """After its message the liar's sum is inside the spread of the honest sums, whatever it has sent before."""
    sent = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-7.0, 3.0], [2.0, 2.0]], dtype=torch.float64)
    sums = sent + arrived("a_little", {"rule.sent.change": sent})
    honest = (sent + VECTORS)[[0, 1, 3]]
    expected = honest.mean(0) - 1.5 * honest.std(0, correction=0)
    assert torch.allclose(sums[2], expected, rtol=0, atol=1e-14)


def test_liars_are_given_or_drawn_by_the_seed():
    drawn = [Attack(name="scaling", share=0.2).members(50, seed) for seed in (0, 0, 1)]
    assert [int(one.sum()) for one in drawn] == [10, 10, 10]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert Attack(name="scaling", clients=[3, 1]).members(5, 0).tolist() == [False, True, False, True, False]
    with pytest.raises(ConfigError, match=r"attack.clients has 5; clients are numbered from 0 to 4."):
        Attack(name="scaling", clients=[5]).members(5, 0)


@pytest.mark.parametrize("rule", ["mean", "median"])
def test_colluding_clients_of_fedcef_hold_one_sum(rule):
    algorithm = FedCEF(**SMALL, compressor=TopK(ratio=0.2))
    simulation = Simulation(
        PROBLEM, algorithm, batch_size=5, aggregation=rule, attack={"name": "a_little", "clients": [0, 3]}
    )
    for _ in range(6):
        simulation.step()
        sums, honest = simulation.server["rule.sent.delta"], simulation.clients["c_i"]
        assert torch.allclose(sums[0], sums[3], rtol=0, atol=1e-14)
        assert torch.equal(sums[[1, 2, 4]], honest[[1, 2, 4]])
        expected = sums[[1, 2, 4]].mean(0) - 1.5 * sums[[1, 2, 4]].std(0, correction=0)
        assert torch.allclose(sums[0], expected, rtol=0, atol=1e-13)


def test_the_same_attack_is_the_same_run_and_bytes_are_those_of_honest_messages():
    def run(attack):
        simulation = Simulation(PROBLEM, FedAvg(**SMALL), batch_size=5, attack=attack)
        for _ in range(4):
            simulation.step()
        return simulation

    once, again, nobody = run("inner_product"), run({"name": "inner_product"}), run(None)
    assert torch.equal(once.model(), again.model())
    assert not torch.equal(once.model(), nobody.model())
    assert once.ledger.totals() == nobody.ledger.totals()


def test_flipped_labels_are_trained_on_and_not_evaluated_on():
    settings = Settings(num_clients=5, rounds=2, attack={"name": "label_flip", "clients": [1, 4]})
    problem = settings.build_problem()
    false = poisoned(problem, settings)
    for client in range(5):
        true, used = problem.client_samples(client).targets, false.client_samples(client).targets
        assert torch.equal(used, 9 - true if client in (1, 4) else true)
    simulation = Simulation(problem, settings.build_algorithm(problem), settings)
    assert simulation.problem.data is problem.data
    assert simulation.engine.gradients.problem.data is not problem.data


def test_what_cannot_be_attacked_is_refused():
    for attack, options, says in (
        ({"name": "label_flip"}, {}, "label_flip needs classes"),
        ({"name": "scaling"}, {"network": {"mode": "async"}}, "Attacks are on rounds"),
        ({"name": "bribe"}, {}, "attack.name is 'bribe'; it must be 'sign_flip', 'scaling'"),
        ({"name": "scaling", "share": 0.0}, {}, "attack.share is 0.0; it must be greater than 0."),
    ):
        with pytest.raises(ConfigError, match=says):
            Simulation(PROBLEM, FedAvg(**SMALL), attack=attack, **options)
