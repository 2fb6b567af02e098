"""A robust rule in a deployment: the simulator's bits, also through faults, lost states and recovery."""

import pytest
import torch

from fedcef.core.errors import ConfigError
from fedcef.deployment.protocol import Protocol

from .loopback import Loopback
from .setting import equal, simulation, small_settings
from .test_faults import check
from .test_parity import compare
from .test_rejoin import lose

CLIPPED = {"name": "norm_clipping", "memory": 0.5}
FEDAVG = {"algorithm": {"name": "fedavg"}, "compressor": {"name": "identity"}}


@pytest.mark.parametrize("rule", ["trimmed_mean", "median", CLIPPED, "geometric_median"], ids=str)
@pytest.mark.parametrize("method", ["fedcef", "fedcef lossy", "scaffold"])
def test_the_simulators_bits(tmp_path, method, rule):
    compare(small_settings(method, aggregation=rule, rounds=5), tmp_path)


def test_the_simulators_bits_of_fedavg_with_some_of_the_clients(tmp_path):
    compare(small_settings(**FEDAVG, aggregation="median", clients_per_round=3), tmp_path)


@pytest.mark.parametrize("rule", ["mean", "median"])
def test_settings_remember_the_rule(rule):
    text = small_settings(aggregation=rule).to_toml()
    assert ("[aggregation]" in text) == (rule != "mean")  # a run without one is what it always was


def test_a_server_that_was_killed_goes_on_bit_for_bit(tmp_path):
    settings = small_settings("fedcef", aggregation=CLIPPED, rounds=8, snapshot_every=3)
    loop = Loopback(settings, tmp_path).run(rounds=5)  # two rounds after a snapshot
    before = dict(loop.server.state.server)
    loop.reopen_server()
    assert equal(loop.server.state.server, before)
    loop.run()
    simulated = simulation(settings)
    for _ in range(8):
        simulated.step()
    assert equal(loop.server.state.replica, simulated.replica)
    assert equal(loop.server.state.server, simulated.server)


@pytest.mark.parametrize("method", ["fedcef", "scaffold"])
def test_everything_at_once(tmp_path, method):
    settings = small_settings(method, aggregation="median", rounds=12, snapshot_every=3, seed=1)
    loop = Loopback(settings, tmp_path, seed=1, chance=0.03).run()
    check(loop)
    assert sum(loop.faults.values()) >= 20


def test_a_client_that_lost_its_state_begins_its_sum_anew(tmp_path):
    settings = small_settings("fedcef", aggregation="median", precision="float64", rounds=6)
    loop = Loopback(settings, tmp_path).run(rounds=3)
    lose(loop, 2)
    loop.run()
    sums, controls = loop.server.state.server["rule.sent.delta"], loop.table()["c_i"]
    assert torch.allclose(sums, controls, rtol=0, atol=1e-15 * float(controls.abs().max()) * 8)
    assert torch.allclose(loop.server.state.replica["c"], sums.sort(dim=0).values[2], rtol=0, atol=1e-13)


def test_a_deployment_has_no_simulated_attack_and_no_rule_that_is_not_right():
    problem = small_settings().build_problem()
    for changes, says in (
        ({"attack": {"name": "scaling"}}, "Attacks are simulated only; leave .attack. out in a deployment."),
        ({"aggregation": "median", "weighting": "samples"}, "counts all clients alike"),
        ({"aggregation": "median", "clients_per_round": 3}, "algorithm.participation = 'averaged'"),
    ):
        with pytest.raises(ConfigError, match=says):
            Protocol(small_settings(**changes), problem)
