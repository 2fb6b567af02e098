"""Runs in which everything goes wrong, and what must hold all the same.

The final replica is, bit for bit, that of a run without faults in which the same clients took part in every round; no
logged round is ever lost; c = mean c_i at rounding level.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
import torch

from fedcef.algorithms import FedCEF
from fedcef.deployment import DeploymentSettings

from .fault_kinds import ALL, CLIENT, SERVER, UP
from .loopback import Loopback
from .setting import Replayed, equal, replayed, small_settings


def check(loop: Loopback) -> Replayed:
    """Everything that must hold after any run."""
    server = loop.server
    reference = replayed(loop.settings, loop.history)
    assert len(loop.history) == server.round == loop.settings.rounds
    assert equal(server.state.replica, reference.replica)
    assert equal(server.state.server, reference.server)
    for client, state in enumerate(loop.client_states()):
        if state is not None:
            assert equal(state, {name: table[client] for name, table in reference.clients.items()}), client
    server.finish()
    records = server.state.folder.records()
    assert [record["round"] for record in records] == list(range(loop.settings.rounds + 1))
    assert [record["accepted"] for record in records[1:]] == [len(members) for members in loop.history]
    return reference


def control_gap(loop: Loopback, reference: Replayed) -> float:
    """How far the c that the server works with is from the mean of what it knows of the clients, of c's size."""
    state, algorithm, mean = loop.server.state, loop.server.protocol.algorithm, reference.clients["c_i"].mean(0)
    if "c" in state.server:
        c = state.server["c"]
    else:
        c = state.replica["c"]
        mean = algorithm.known(c, mean) if isinstance(algorithm, FedCEF) else mean
    return float((c - mean).norm() / c.norm())


@pytest.mark.parametrize(
    "method", ["fedcef", "fedcef dense", "fedcef lossy", "fedcef snapshot", "scaffold", "feddr", "fedda"]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_everything_at_once(tmp_path, method, seed):
    settings = small_settings(method, rounds=12, snapshot_every=3, seed=seed)
    loop = Loopback(settings, tmp_path, seed=seed, chance=0.03).run()
    reference = check(loop)
    assert sum(loop.faults.values()) >= 20  # in twelve such runs well above 200
    if method.startswith("fedcef") or method == "scaffold":
        assert control_gap(loop, reference) < 1e-5


@pytest.mark.parametrize("seed", [1, 2])
def test_some_of_the_clients(tmp_path, seed):
    settings = small_settings("fedcef", rounds=16, clients_per_round=3, snapshot_every=4)
    loop = Loopback(settings, tmp_path, seed=seed, chance=0.03).run()
    reference = check(loop)
    assert control_gap(loop, reference) < 1e-5


PAGE = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text("utf-8")
TABLE = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", PAGE.split("| fault |")[1], re.MULTILINE))
TABLE.pop("---", None)
IN_PASSING = {"duplicate", "behind", "late"}  # what asking again, and a queue that is not empty, bring with them


def test_the_page_lists_all_faults():
    assert tuple(TABLE) == ALL


@pytest.mark.parametrize("kind", ALL)
def test_each_fault_alone(tmp_path, kind):
    """Whatever happens again and again, the run ends, is right, and has counted it as docs/reliability.md says."""
    settings = small_settings("fedcef", rounds=8, snapshot_every=2)
    chance = 0.03 if kind == "kill server between steps" else 0.25  # there are many more steps than anything else
    loop = Loopback(settings, tmp_path, seed=5, chance=chance, kinds=(kind,)).run()
    reference = check(loop)
    assert loop.faults[kind] >= 2
    assert control_gap(loop, reference) < 1e-5
    counted = Counter()
    for record in loop.server.state.folder.records():
        counted.update(record["reasons"])
        assert record["refused"] == sum(record["reasons"].values())
    expected = set(TABLE[kind].split(" or ")) - {"–"}
    assert not expected or expected & counted.keys()
    assert counted.keys() <= expected | IN_PASSING
    listed = tmp_path / "server" / "refused.jsonl"
    assert not counted or len(listed.read_text().splitlines()) >= sum(counted.values())


def test_methods_that_need_everyone_wait_for_everyone(tmp_path):
    kinds = tuple(kind for kind in ALL if "state" not in kind)
    loop = Loopback(small_settings("zhang"), tmp_path, seed=3, chance=0.03, kinds=kinds).run()
    check(loop)
    assert all(len(members) == 5 for members in loop.history)


def test_a_round_closes_with_those_who_answered(tmp_path):
    """At the deadline with enough, never with fewer."""
    settings = small_settings("fedcef", rounds=1)
    loop = Loopback(settings, tmp_path, deployment=DeploymentSettings(min_clients=3, deadline_s=10))
    orders = loop.server.start_round(0.0)
    for client in (4, 1):
        assert loop.server.receive(loop.name(client), loop.workers[client].handle(orders[client])).accepted
    assert not loop.server.can_close(9.0)
    assert not loop.server.stalled(9.0)
    assert loop.server.stalled(10.0)
    again = loop.server.start_round(10.0)
    assert sorted(again) == [0, 2, 3]  # those whose reply is there are not asked again
    assert loop.server.receive(loop.name(2), loop.workers[2].handle(orders[2])).accepted
    assert not loop.server.can_close(11.0)
    assert loop.server.can_close(20.0)
    record = loop.server.close_round(20.0)
    assert record["accepted"] == 3
    assert equal(loop.server.state.replica, replayed(settings, [{1: False, 2: False, 4: False}]).replica)


def test_the_cohort_is_drawn_among_those_connected(tmp_path):
    loop = Loopback(small_settings("fedcef", clients_per_round=2), tmp_path)
    assert set(loop.server.start_round(0.0, connected=[1, 3])) == {1, 3}
    assert set(loop.server.start_round(1.0, connected=[0, 1, 2])) < {0, 1, 2}


@pytest.mark.parametrize("group", [CLIENT, UP, SERVER], ids=["clients", "replies", "server"])
def test_long_runs(tmp_path, group):
    settings = small_settings("fedcef lossy", rounds=30, snapshot_every=7)
    loop = Loopback(settings, tmp_path, seed=11, chance=0.05, kinds=group).run()
    reference = check(loop)
    assert control_gap(loop, reference) < 1e-5
    assert not torch.isnan(loop.server.state.replica["z"]).any()
