"""A run over Flower is the simulated one, bit for bit: replicas and counted bytes."""

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")


from deployment.setting import METHODS, equal, simulation, small_settings

from .setting import Deployed

SOME = ["fedcef", "fedcef dense", "fedcef lossy", "zhang", "scaffold", "fedda", "feddr"]
DIGITS = {"data": {"name": "digits"}, "model": {"name": "softmax"}, "batch_size": 16}


def compare(settings, path):
    deployed, simulated = Deployed(settings, path).run(), simulation(settings)
    for record, replica in zip(deployed.records, deployed.replicas, strict=True):
        simulated.step()
        assert equal(replica, simulated.replica), f"round {record['round']}"
        counted = simulated.ledger.totals()
        assert {name: record[name] for name in counted} == counted
        assert record["refused"] == 0
    assert deployed.summary["rounds"] == settings.rounds


@pytest.mark.parametrize("method", SOME)
def test_all_clients(tmp_path, method):
    assert method in METHODS
    compare(small_settings(method, rounds=6), tmp_path)


@pytest.mark.parametrize("method", ["fedcef", "scaffold"])
def test_some_of_the_clients(tmp_path, method):
    compare(small_settings(method, clients_per_round=2, rounds=8), tmp_path)


def test_a_classifier(tmp_path):
    compare(small_settings("fedcef", rounds=4, **DIGITS), tmp_path)
